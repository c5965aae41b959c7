#!/usr/bin/env python3
"""The pages of --html in a real browser: nothing complains, nothing asks the network, and what a page says of a device is
what --json --pieces says. Skipped (77) where there is no Chromium. Prints how long pages take; asserts nothing about it.

usage: page_test.py COMMAND SCREENSHOT_FOLDER
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

from browser import Browser, find

HOSTILE = "</script><img src=x onerror=document.title='taken'>\u2028<!-- <b>"
SIZES = {"bf16": 2, "f32": 4}
PLANS = {
    "four": ["{X:4}", "[<X>16, 8]", "[16, <X>8]", "--dtype", "f32"],
    "swap": ["{x:16,y:16}", "[<x>1024, <y>1024]", "[<y>1024, <x>1024]"],
    "nodes": ["{dp:4,tp:8}", "[<dp>4096, <tp>8192]", "[<tp>4096, <dp>8192]", "--topology", "dgx-h100"],
    "reduction": ["{X:4,Y:2}", "[<X>16, 8] sum<Y>", "[<X,Y>16, 8]"],
    "meshes": ["{a:6}@4", "[<a>30, 7]", "[<y>30, <x>7]", "--to-mesh", "{x:2,y:2}@[9,2,5,0]"],
    "uneven": ["{X:5}", "[<X>7, 3, 2]", "[7, <X>3, 2]"],
    "thousands": ["{x:64,y:64}", "[<x,y>8192, 8192]", "[<x>8192, <y>8192]"],
    "nothing": ["{X:4}", "[<X>16, 8]", "[<X>16, 8]"],
    "scalar": ["{X:4}", "[] sum<X>", "[]"],
}


def run(command, *arguments, stdin=None, codes=(0,)):
    done = subprocess.run([command, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode not in codes:
        sys.exit(f"exit code {done.returncode}: reshard {arguments}: {done.stderr}")
    return done.stdout


def quiet(browser, name):
    assert not browser.complaints, (name, browser.complaints)


# Where a device is on the screen: what the pointer finds is the page's own answer.
FIND = """(() => {
  const grid = document.querySelector(".devices"), wanted = %d;
  grid.scrollIntoView({block: "start"});
  window.scrollBy(0, -40);
  const box = grid.querySelector("canvas").getBoundingClientRect();
  const details = document.querySelector(".details");
  const at = (x, y) => {
    grid.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: y}));
    return details.dataset.device === "" ? null : Number(details.dataset.device);
  };
  // Rows are in the order of devices: the row whose first device is the last that is not above the wanted one.
  let row = null, found = null;
  for (let y = box.top + 4; y < box.bottom; y += 3) { const first = at(box.left + 3, y); if (first !== null && first <= wanted) row = y; }
  for (let x = box.left + 3; row !== null && found === null && x < box.right; x += 3) if (at(x, row) === wanted) found = [x, row];
  grid.dispatchEvent(new PointerEvent("pointerleave"));
  return found;
})()"""
SHOWN = """[...document.querySelectorAll(".story .step")].map((step) => ({
  sent: step.querySelector(".line.out").dataset.bytes, received: step.querySelector(".line.in").dataset.bytes, text: step.innerText}))"""


def traffic(plan):
    """Bytes sent and received by (step, device), and peers, by the pieces of the plan."""
    sent, received = collections.Counter(), collections.Counter()
    senders = collections.defaultdict(collections.Counter)
    for step, sender, receiver, _, size in plan["pieces"]:
        elements = SIZES[plan["dtype"]]
        for length in size:
            elements *= length
        sent[step, sender] += elements
        received[step, receiver] += elements
        senders[step, receiver][sender] += elements
    return sent, received, senders


def devices_in(text):
    out = set()
    for first, last in re.findall(r"(\d+)(?:–(\d+))?", text):
        out.update(range(int(first), int(last or first) + 1))
    return out


def check_hover(browser, name, plan, device):
    sent, received, senders = traffic(plan)
    place = browser.js(FIND % device)
    assert place, f"{name}: device {device} is nowhere to be pointed at"
    browser.move(*place)
    assert browser.js("document.querySelector('.details').dataset.device") == str(device), (name, device)
    shown = browser.js(SHOWN)
    assert len(shown) == len(plan["steps"]), (name, shown)
    for i, step in enumerate(shown):
        told = int(step["sent"]), int(step["received"])
        if plan["steps"][i]["op"] == "AllReduce":  # its pieces are whole contributions; the figures are those of chunks
            assert 0 < told[1] <= plan["steps"][i]["recv_bytes_max"], (name, device, told)
        else:
            assert told == (sent[i, device], received[i, device]), (name, device, i, step, sent[i, device], received[i, device])
        peers = senders[i, device]
        for line in step["text"].splitlines():
            groups = re.findall(r"from (?:each of )?([0-9, –]+?)(?= and |;|$)", line)
            for group in groups:
                assert devices_in(group) <= set(peers), (name, device, group, peers)
            if groups and " and " not in line:
                assert set().union(*map(devices_in, groups)) == set(peers), (name, device, line, peers)


def check_slider(browser, name, plan):
    steps = len(plan["steps"])
    browser.js("document.querySelector('input[type=range]').focus()")
    browser.key("End")
    assert browser.js("document.querySelector('.where').textContent") == "After the last step", name
    browser.key("Home")
    assert browser.js("document.querySelector('.where').textContent") == "Before the first step", name
    browser.key("ArrowRight")
    assert browser.js("document.querySelector('.where').textContent").startswith(f"Step 1 of {steps} is running"), name
    browser.js("document.querySelector('.devices').focus()")
    browser.key("End")
    last = browser.js("document.querySelector('.details').dataset.device")
    browser.key("ArrowLeft")
    before = browser.js("document.querySelector('.details').dataset.device")
    assert last != before and "" not in (last, before), (name, last, before)
    browser.key("Escape")
    assert browser.js("document.querySelector('.details').dataset.device") == "", name


def check_alternatives(browser, name, plan):
    rows = browser.js("[...document.querySelectorAll('.alternatives tbody tr')].map((row) => row.innerText)")
    assert len(rows) == 1 + len(plan["alternatives"]), (name, rows)
    for other, row in zip(plan["alternatives"], rows[1:]):
        assert other["rejected_because"] in row, (name, other, row)
    radios = browser.js("document.querySelectorAll('.alternatives input').length")
    for i in range(1, radios):
        browser.js(f"document.querySelectorAll('.alternatives input')[{i}].click()")
        browser.settle()
        assert "This plan lost" in browser.js("document.querySelector('.banner').textContent"), name
        boxes = browser.js("[...document.querySelectorAll('.box b')].map((box) => box.textContent)")
        assert boxes == plan["alternatives"][i - 1]["ops"], (name, boxes)
    browser.js("document.querySelectorAll('.alternatives input')[0].click()")
    assert browser.js("document.querySelector('.banner').hidden"), name


def check_batch(browser, folder, command):
    problems = [{"id": f"layers.{i}.weight", "mesh": "{X:4}", "from": f"[<X>{64 * (1 + i * 7 % 5)}, 8]", "to": f"[{64 * (1 + i * 7 % 5)}, <X>8]"} for i in range(12)]
    problems += [{"id": HOSTILE, "mesh": "{X:4}", "from": "[<X>8]", "to": "[8]"}, {"id": "broken " + HOSTILE, "mesh": "{X:4}", "from": "[<Z>8]", "to": "[8]"}]
    page = os.path.join(folder, "batch.html")
    run(command, "plan", "--batch", "-", "--html", page, stdin="".join(json.dumps(p) + "\n" for p in problems), codes=(4,))
    browser.open(page)
    names = "[...document.querySelectorAll('tbody tr td:first-child')].map((cell) => cell.textContent)"
    assert browser.js(names) == [p["id"] for p in problems], browser.js(names)
    received = "[...document.querySelectorAll('tbody tr:not(.failed) td:nth-child(4)')].map((cell) => cell.textContent)"
    before = browser.js(received)
    browser.js("document.querySelectorAll('th button')[3].click()")
    unit = {"B": 1, "KiB": 1024}
    value = lambda text: float(text.split()[0]) * unit[text.split()[1]]
    assert browser.js(received) == sorted(before, key=value, reverse=True) and browser.js("document.querySelectorAll('th')[3].getAttribute('aria-sort')") == "descending"
    browser.js("document.querySelectorAll('th button')[3].click()")
    assert browser.js(received) == sorted(before, key=value), browser.js(received)
    assert browser.js(names)[-1] == "broken " + HOSTILE, "what has no plan comes last"
    for name in ("layers.3.weight", HOSTILE):
        browser.js(f"[...document.querySelectorAll('tbody a')].find((link) => link.textContent === {json.dumps(name)}).click()")
        browser.settle()
        assert browser.js("document.querySelector('h2').textContent") == name
        assert browser.js("document.querySelectorAll('.timeline .box').length") > 0
        browser.js("document.querySelector('.back a').click()")
        browser.settle()
    assert browser.js("document.querySelectorAll('tbody tr').length") == len(problems)
    quiet(browser, "batch")
    run(command, "plan", "--batch", "-", "--coalesce", "--html", page, stdin="".join(json.dumps(p) + "\n" for p in problems[:-1]))
    browser.open(page)
    assert browser.js(names) == [p["id"] for p in problems[:-1]], browser.js(names)
    assert "1 bucket" in browser.js("document.querySelector('dl').innerText")
    quiet(browser, "coalesced")


def check_check(browser, folder, command, plan):
    page, text = os.path.join(folder, "check.html"), os.path.join(folder, "plan.json")
    wrong = json.loads(json.dumps(plan))
    wrong.pop("pieces")
    wrong["steps"][0]["recv_bytes_max"] += 1
    wrong["certificate"]["detail"] = HOSTILE
    for one, verdict, codes in ((plan, "agree", (0,)), (wrong, "steps[0].recv_bytes_max", (1,))):
        with open(text, "w", encoding="utf-8") as file:
            json.dump(one, file)
        run(command, "check", text, "--html", page, codes=codes)
        browser.open(page)
        assert verdict in browser.js("document.body.innerText"), (verdict, browser.js("document.body.innerText"))
        quiet(browser, "check")


def main():
    command, pictures = sys.argv[1:3]
    for arguments in (["plan", *PLANS["four"]], ["show", "{X:4}", "[<X>16]"]):
        run(command, *arguments, "--html", "/nowhere/page.html", codes=(5,))
    if not (path := find()):
        print("skipped: there is no chromium; tools/setup.sh --full installs it")
        sys.exit(77)
    os.makedirs(pictures, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser(path) as browser:
        plans = {}
        for name, arguments in PLANS.items():
            page = os.path.join(folder, name + ".html")
            plan = plans[name] = json.loads(run(command, "plan", *arguments, "--pieces", "--html", page))
            assert os.path.getsize(page) < 1_000_000, (name, os.path.getsize(page))
            opened = browser.open(page)
            quiet(browser, name)
            assert browser.js("document.querySelector('pre').textContent") == run(command, "plan", *arguments, "--explain"), name
            ids = sorted({d for piece in plan["pieces"] for d in piece[1:3]})
            for device in {*ids[:1], *ids[len(ids) // 2 : len(ids) // 2 + 1], *ids[-1:]} if name != "thousands" else {70, 1000}:
                check_hover(browser, name, plan, device)
            took = browser.js("""new Promise((done) => { const grid = document.querySelector(".devices"), box = grid.getBoundingClientRect(), start = performance.now();
              grid.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + box.height / 3}));
              requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))); })""")
            if plan["steps"]:
                check_slider(browser, name, plan)
            check_alternatives(browser, name, plan)
            quiet(browser, name)
            print(f"{name}: {os.path.getsize(page)} bytes, open after {opened:.0f} ms, a hover takes {took:.1f} ms")
        layout = os.path.join(folder, "layout.html")
        run(command, "show", "{X:4,Y:2}", "[<X>16, <4,Y>16]", "--device", "3", "--html", layout)
        browser.open(layout)
        assert "[4, 8) × [2, 4) [6, 8) [10, 12) [14, 16)" in browser.js("document.querySelector('.story').innerText")
        quiet(browser, "layout")
        check_batch(browser, folder, command)
        check_check(browser, folder, command, plans["nodes"])

        for name, look in (("four", {}), ("swap", {"dark": True}), ("nodes", {}), ("reduction", {"dark": True}), ("thousands", {}),
                           ("layout", {}), ("batch", {"dark": True}), ("check", {}), ("nodes", {"phone": True, "width": 390, "height": 844})):
            browser.open(os.path.join(folder, name + ".html"), **look)
            browser.js("""(() => { const slider = document.querySelector("input[type=range]"), number = document.querySelector(".details input");
              if (slider) { slider.value = slider.max - 0.5; slider.dispatchEvent(new Event("input")); }
              if (number) { number.value = 3; number.dispatchEvent(new Event("input")); } })()""")
            browser.settle()
            if look.get("phone"):
                browser.js("""(() => { const number = document.querySelector(".details input"); number.value = ""; number.dispatchEvent(new Event("input")); })()""")
                place = browser.js(FIND % 9)
                browser.tap(*place)
                assert browser.js("document.querySelector('.details').dataset.device") == "9", "a tap keeps the device"
            wide = browser.js("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            assert wide[0] <= wide[1], f"{name} is wider than its window: {wide}"
            browser.screenshot(os.path.join(pictures, name + ("_phone" if look.get("phone") else "_dark" if look.get("dark") else "") + ".png"))
            quiet(browser, name)
    print("pages agree with the plans")


if __name__ == "__main__":
    main()
