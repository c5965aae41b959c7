#!/usr/bin/env python3
"""How the command behaves toward people: its help and manual, completion in shells, what --quiet and NO_COLOR leave.

usage: manners_test.py COMMAND SOURCE_DIR
"""
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from command import Command

TOPICS = ("layouts", "meshes", "notations", "topologies", "batches", "checkpoints", "rules", "recipes", "memory", "exit-codes",
          "environment")


def run(path, *arguments, **options):
    return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=120, check=False, **options)


def subcommands_of(reshard):
    listed = re.findall(r"^  ([a-z]+)(?:, [a-z]+)*  ", reshard("help").split("General")[0], flags=re.M)
    assert len(listed) >= 9, listed
    return listed


def texts(reshard):
    """All helps fit 80 columns but for examples, which are whole to be copied, and every subcommand has one."""
    assert reshard("help") == reshard("--help") == reshard("-h")
    for topic in TOPICS:
        assert topic in reshard("help")
        lines = reshard("help", topic).splitlines()
        assert len(lines) <= 24 and max(map(len, lines)) <= 80, topic
    for name in subcommands_of(reshard):
        text = reshard("help", name)
        assert text == reshard(name, "--help"), name
        assert "\nExamples\n" in text, name
        told, examples = text.split("\nExamples\n")
        assert max(map(len, told.splitlines())) <= 80, name
        assert re.search(r"^  reshard |^  \S*source|^  for ", examples, flags=re.M), examples
        assert "--quiet, -q" in told and "reshard help exit-codes" in examples, name
        assert "TEXT" not in told and not re.search(r"^  --\S+( \S+)?$\n(?! {6})", told, flags=re.M), told
    assert reshard("help", "checkpoint") == reshard("help", "convert")
    narrow = run(reshard.path, "help", "plan", env=os.environ | {"COLUMNS": "50"}).stdout
    assert max(map(len, narrow.split("Network and goal")[0].splitlines())) <= 50
    said = reshard.fails("help", "layuots", code=2)
    assert "did you mean layouts?" in said and "exit-codes" in said, said
    assert "plan, show, run, calibrate, check, inspect, convert, verify, fingerprint" in reshard.fails(code=2)
    assert "bash, zsh and fish" in reshard.fails("completion", "tcsh", code=2)
    assert "did you mean version?" in reshard.fails("verison", code=2)
    assert "B is required: reshard verify A B (see reshard help verify)" in reshard.fails("verify", "a", code=2)
    assert "LAYOUT is required" in reshard.fails("show", "step-1000", code=2)
    said = reshard.fails("show", "/", code=2)
    assert said.rstrip().endswith("(see reshard help show); what a checkpoint holds: reshard inspect /"), said
    assert "c is one argument too many for reshard verify A B" in reshard.fails("verify", "a", "b", "c", code=2)
    assert "unknown flag -x" in reshard.fails("verify", "-x", "a", "b", code=2)


def furnish(folder, reshard):
    """What the examples speak of."""
    names = [f"model.layers.{i}.{part}.weight" for i in range(2)
             for part in ("wq", "wo", "q_proj", "k_proj", "v_proj", "norm")]
    header = {name: {"dtype": "F32", "shape": [8, 8], "data_offsets": [256 * i, 256 * i + 256]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    os.makedirs(f"{folder}/made")
    with open(f"{folder}/made/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(256 * len(names)))
    reshard("convert", f"{folder}/made", f"{folder}/step-1000", "--mesh", "{dp:4}", "--layout", "[<dp>, ...]")
    reshard("convert", f"{folder}/made", f"{folder}/serving", "--mesh", "{tp:2}", "--layout", "[<tp>, ...]")
    blocks = {topic: reshard("help", topic) for topic in ("rules", "recipes", "batches", "topologies")}

    def json_of(topic):
        lines = blocks[topic].splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith("  {"))
        end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("  "))
        return "\n".join(lines[begin:end])

    for topic, name in (("rules", "rules.json"), ("recipes", "recipe.json"), ("batches", "problems.jsonl"), ("topologies", "net.json")):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(json_of(topic))
    reshard("plan", "{X:16}", "[<X>64]", "[64]", "--topology", f"{folder}/net.json")


def examples(reshard):
    """Every example of every help and topic runs, in the order in which they stand."""
    lines = []
    for name in (*subcommands_of(reshard), *TOPICS):
        # That of fish writes into the user's configuration; `completions` tries what it writes.
        lines += [line for line in re.findall(r"^  ((?:reshard|for|source) .*)$", reshard("help", name), flags=re.M)
                  if ".config" not in line and not line.startswith("reshard [") and "SUBCOMMAND" not in line and "[flags]" not in line]
    assert len(lines) > 20, lines
    with tempfile.TemporaryDirectory() as folder:
        furnish(folder, reshard)
        os.mkdir(f"{folder}/bin")
        os.symlink(os.path.abspath(reshard.path), f"{folder}/bin/reshard")
        environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
        for line in dict.fromkeys(lines):
            if "zsh" in line:
                continue
            if " verify " in f" {line}" and "exported" not in line and "serving" not in line:
                continue
            if "convert step-1000 exported --to hf" in line:
                shutil.rmtree(f"{folder}/exported", ignore_errors=True)
            if "convert step-1000 serving" in line:
                shutil.rmtree(f"{folder}/serving")
            done = run("bash", "-uo", "pipefail", "-c", line, cwd=folder, env=environment)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            if "--dry-run" in line and "serving" in line:
                reshard("convert", f"{folder}/step-1000", f"{folder}/serving", "--rules", f"{folder}/rules.json")
    print(len(lines), "examples")


def manual(reshard):
    with tempfile.TemporaryDirectory() as folder:
        reshard("help", "--man-pages", f"{folder}/man")
        pages = sorted(os.listdir(f"{folder}/man"))
        assert pages == sorted(["reshard.1", *(f"reshard-{name}.1" for name in subcommands_of(reshard)),
                                *(f"reshard-{topic}.7" for topic in TOPICS)]), pages
        groff = shutil.which("groff")
        if groff is None:
            print("no groff: the manual's form is not tried")
            return
        for page in pages:
            done = run(groff, "-man", "-Tutf8", "-ww", "-P-cbou", f"{folder}/man/{page}")
            assert done.returncode == 0 and done.stderr == "", f"{page}: {done.stderr}"
            name = page[:-2]
            assert name.upper() in done.stdout and "NAME" in done.stdout, page
        shown = run(groff, "-man", "-Tutf8", "-P-cbou", f"{folder}/man/reshard-plan.1").stdout
        assert "--memory-limit BYTES" in shown and "reshard plan '{X:4}' '[<X>512, 128]' '[512, <X>128]'" in shown, shown
        shown = run(groff, "-man", "-Tutf8", "-P-cbou", f"{folder}/man/reshard-layouts.7").stdout
        assert "[<2,~X>512]            zigzag: the second block in reverse" in shown, shown


def completed_by_bash(script, words, folder):
    """What bash offers after these words, of which the last is being typed."""
    code = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _reshard; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = run("bash", "-c", code, cwd=folder)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return set(done.stdout.split("\n")) - {""}


def completions(reshard):
    with tempfile.TemporaryDirectory() as folder:
        for shell in ("bash", "zsh", "fish"):
            with open(f"{folder}/reshard.{shell}", "w", encoding="utf-8") as file:
                file.write(reshard("completion", shell))
        os.mkdir(f"{folder}/here")
        for name in ("a plan.json", "other"):
            open(f"{folder}/here/{name}", "w", encoding="utf-8").close()

        def offered(*words):
            return completed_by_bash(f"{folder}/reshard.bash", words, f"{folder}/here")

        assert offered("reshard", "pl") == {"plan"}
        assert set(subcommands_of(reshard)) <= offered("reshard", "''")
        assert offered("reshard", "plan", "--obj") == {"--objective"}
        assert offered("reshard", "plan", "--objective", "''") == {"time", "bytes", "steps"}
        assert offered("reshard", "plan", "--objective", "=") == {"time", "bytes", "steps"}
        assert offered("reshard", "plan", "--objective", "=", "b") == {"bytes"}
        assert offered("reshard", "plan", "--dtype", "f3") == {"f32"}
        assert offered("reshard", "plan", "--batch", "''") == {"a plan.json", "other"}
        assert offered("reshard", "plan", "--topology", "''") >= {"dgx-h100", "gb200", "mi300x", "other"}
        assert offered("reshard", "plan", "--memory-limit", "''") == set()
        assert offered("reshard", "check", "a") == {"a plan.json"}
        assert "--verify" in offered("reshard", "convert", "--") and "--no-verify" in offered("reshard", "run", "--no")
        assert offered("reshard", "help", "lay") == {"layouts"} and offered("reshard", "completion", "z") == {"zsh"}
        if shutil.which("zsh"):
            # A completion of zsh shows in a terminal only: zsh itself runs in one that is not there.
            code = (f"zmodload zsh/zpty; zpty z zsh -f; zpty -w z 'PS1=; autoload -Uz compinit; compinit -u; cd {folder}/here; "
                    f"source {folder}/reshard.zsh; zstyle \":completion:*\" list-prompt \"\"; echo re''ady'; "
                    "zpty -r z line '*ready*'; zpty -w -n z $'reshard plan --objective by\\t'; zpty -r z line '*bytes*'; echo \"$line\"; "
                    "zpty -w -n z $'\\C-ureshard convert --overw\\t'; zpty -r z line '*--overwrite*'; echo \"$line\"")
            done = run("zsh", "-f", "-c", code)
            assert "bytes" in done.stdout and "--overwrite" in done.stdout, done.stdout + done.stderr
        if shutil.which("fish"):
            def by_fish(line):
                done = run("fish", "--no-config", "-c", f"source {folder}/reshard.fish; complete -C {line!r}", cwd=f"{folder}/here")
                assert done.returncode == 0 and done.stderr == "", done.stderr
                return {offer.split("\t")[0] for offer in done.stdout.splitlines()}

            assert by_fish("reshard pl") == {"plan"}
            assert by_fish("reshard plan --objective ") == {"time", "bytes", "steps"}
            assert "--overwrite" in by_fish("reshard convert --ov")
            assert "other" in by_fish("reshard plan --batch o")
            assert "layouts" in by_fish("reshard help lay")


def seen_on_terminal(arguments, environment):
    """What a terminal is sent that is both standard output and standard error."""
    master, slave = pty.openpty()
    child = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    child.wait()
    return seen.decode()


def quiet(reshard):
    with tempfile.TemporaryDirectory() as folder:
        furnish(folder, reshard)
        problem = ["{X:4}", "[<X>64]", "[64]"]
        cases = [["plan", *problem, "--svg", f"{folder}/a.svg", "--html", f"{folder}/a.html"],
                 ["show", *problem[:2], "--svg", f"{folder}/b.svg", "--html", f"{folder}/b.html"],
                 ["plan", "--batch", f"{folder}/problems.jsonl", "--html", f"{folder}/c.html"]]
        for case in cases:
            loud, still, short = (run(reshard.path, *case, *more) for more in ([], ["--quiet"], ["-q"]))
            assert loud.returncode == still.returncode == short.returncode == 0, still.stderr
            data = loud.stdout if "--batch" in case else ""
            assert loud.stderr and loud.stdout and still.stderr == short.stderr == "" and still.stdout == short.stdout == data, case
        assert reshard("plan", *problem, "--json", "-q") == reshard("plan", *problem, "--json")
        verbose = run(reshard.path, "convert", f"{folder}/step-1000", f"{folder}/verbose", "--to", "hf", "-v").stderr
        assert "info: moves the result to" in verbose, verbose
        assert reshard("version") == reshard("-V") == reshard("--version") and reshard("plan", "help") == reshard("help", "plan")
        unusable = run(reshard.path, "plan", *problem, env=os.environ | {"RESHARD_TIMEOUT_MS": "abc"})
        assert unusable.returncode == 2 and "RESHARD_TIMEOUT_MS" in unusable.stderr, unusable
        assert "damaged" not in reshard.fails("plan", "{X:4}", "[<Q>64]", "[64]", "--quiet", code=4)
        assert "unknown axis" in reshard.fails("plan", "{X:4}", "[<Q>64]", "[64]", "--quiet", code=4)
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
        convert = [reshard.path, "convert", f"{folder}/step-1000", f"{folder}/again", "--to", "hf", "--overwrite"]
        assert "#" in seen_on_terminal(convert, environment)  # the bar
        assert "\x1b" not in seen_on_terminal([*convert, "--quiet"], environment)
        assert "\x1b[1m" in seen_on_terminal([reshard.path, "help", "plan"], environment)
        assert "\x1b" not in seen_on_terminal([reshard.path, "help", "plan"], environment | {"NO_COLOR": "1"})
        assert "\x1b" not in seen_on_terminal([reshard.path, "help", "plan"], environment | {"TERM": "dumb"})
        assert "\x1b[" in seen_on_terminal([reshard.path, "plan", "{X:4}"], environment)
        assert "\x1b" not in seen_on_terminal([reshard.path, "plan", "{X:4}"], environment | {"NO_COLOR": "1"})
        assert "\x1b" not in run(reshard.path, "help", "plan", env=environment).stdout


def full_disk(reshard):
    """Data that cannot be written is not success."""
    if not os.path.exists("/dev/full"):
        return
    for arguments in (["help"], ["help", "plan"], ["--help"], ["completion", "bash"], ["show", "{X:2}", "[<X>4]"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([reshard.path, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 5 and "standard output" in done.stderr, (arguments, done)


if __name__ == "__main__":
    command = Command(sys.argv[1])
    for test in (texts, examples, manual, completions, quiet, full_disk):
        test(command)
        print(test.__name__, "passed")
