#!/usr/bin/env python3
"""The words of the field stay, and private ones and un-English sentences do not come back.

usage: words_test.py ROOT [RESHARD]

Reads code, docs, tests and, with the command, everything that its --help prints. Each rule is first shown to fire on a
sentence that breaks it, and not to fire on one that does not.
"""
import os
import re
import subprocess
import sys

# (what it finds, what to write instead, a line that breaks it, one that does not)
WORDS = [
    (r"\bNeighbors (?:final|&)|\bNeighbors::|\bNearExchange\b|\bnear\(\)", "SharedMemoryTransport, IntraHostExchange, intra_host()", "class Neighbors final", "Neighboring threads"),
    (r"\bPatience\b|\bpatience_?\b", "Waiter; stall timeout", "class Patience {", "a patient reader"),
    (r"\bBell\b|\bNotice\b", "Doorbell, Mailbox", "struct Bell {", "errors that ranks notice"),
    (r"\bIntroduction\b(?!\s*\n)", "Bootstrap", "class Introduction", "introduced"),
    (r"\bPackAhead\b|\bTakeBack\b|\bGoOnFromAhead\b", "Prepack, Rollback, ResumePrepacked", "void TakeBack();", "taken back"),
    (r"\bLaps\b", "Stopwatch", "Laps lap;", "overlaps"),
    (r"\b[Bb]lame[A-Z]?\w*", "culprit", "the rank to blame", "names the culprit"),
    (r"\bTraffic\b", "TransferSchedule", "Traffic::Create(", "nic traffic"),
    (r"\bHop\b|\bhops\b", "step", "std::vector<Hop> hops", "Hopper"),
    (r"\btwins?_?\b|\bkin\b", "interchangeable; swap class", "digits that are kin", "kind"),
    (r"(?i)\bislands?\b", "domain, locality domain", "between islands of 8", "island_recv_bytes_max"),
    (r"\b[Pp]ending(Axes|Refs|Digit|Within)?\b reduction|\bPending(?!Save|Publication)\w*", "partial", "with pending reductions", "class PendingSave"),
    (r"\b[Ll]eavings\b|\bLeaving\b(?! out)", "stale staging", "RemoveLeavings, the leavings", "leaving out"),
    (r"\bBands?\b|\bMakeBands\b", "batched reads", "struct Band {", "bandwidth"),
    (r"\btrial(::|/)", "self_test", "runtime/trial/rank_run.h", "for (int trial = 0;"),
    (r"(?<![-_\"])\bside files?\b", "auxiliary files", "which side files it has", "--side-file"),
    (r"\b(?:struct|class) (?:Piece|Place)\b", "a name that says what it is a piece of, or where", "struct Piece {", "struct MessagePart {"),
    (r"\bkDigit\b", "kBlocks", "Factor::Kind::kDigit", "kDigits"),
    (r"\bstrangers?\b", "untrusted", "text of a stranger", "strange"),
]
PATTERNS = [
    (r"(?<![Tt]here )\b(?:is|are|was|were) no (?!better|worse|quicker|faster|slower|larger|smaller|longer|more|less|help|harm|trouble|use|one|way|doubt|such|matter|different|other|need|room|reason|sooner|later|closer)[a-z]",
     "is not a ...", "what is no list", "there is no list; it is no longer so"),
    (r"\bfor ever\b", "forever", "it waits for ever", "forever"),
    (r"\bone an? (?:rank|contribution|round|line|problem|mesh axis|batch|device|tensor|worker)\b", "one per ...", "one a rank", "one per rank"),
    (r"\bis there twice\b", "appears twice", "the name is there twice", "appears twice"),
    (r"\bto be had\b", "available", "where one is to be had", "to be handled"),
    (r"[;:.] [Ww]ho (?:has|does|is|reads|asks|waits|uses|goes|holds that|does not)\b|\b[Ff]or who\b", "name the actor", "it waits; who asks gets it", "names the rank, which asks"),
]
# What may keep a word: contracts (JSON keys, flags, include paths), and the deprecated aliases.
ALLOWED = re.compile(r"deprecated|planner/traffic\.h|island_recv_bytes_max|leavings\.h|side_files|PLANNER_TRAFFIC_H|CHECKPOINT_LEAVINGS_H|pending\(\)")
FILES = (".h", ".cc", ".cu", ".py", ".pyi", ".md", ".txt", ".cmake", ".sh", ".js", ".css", ".html", ".in", ".json", ".yml", ".toml")
SKIPPED = ("CHANGELOG.md", "tests/install/words_test.py", "tests/fuzz/corpus/", "tests/checkpoint/fixtures/", "tests/golden/many_plans.json",
           "tests/golden/cases.json", "page/assets/vendor/")


def broken(text):
    """(line, what was found, what to write instead) of each rule that the text breaks."""
    lines = text.splitlines()
    for rule, instead, *_ in WORDS + PATTERNS:
        if not re.search(rule, text):  # as of most texts, at the speed of one search
            continue
        for number, line in enumerate(lines, 1):
            found = re.search(rule, line)
            if found and not ALLOWED.search(line):
                yield number, found[0], instead


def help_texts(command):
    """What --help prints, of the command and of each subcommand and topic."""
    def run(*words):
        return subprocess.run([command, *words], capture_output=True, text=True, check=True).stdout

    yield "--help", run("--help")
    for name in re.findall(r"^  ([a-z]+)  ", run("--help"), re.M):
        yield f"{name} --help", run(name, "--help")


def main():
    root = sys.argv[1]
    for rule, _, breaks, keeps in WORDS + PATTERNS:
        if not re.search(rule, breaks) or (re.search(rule, keeps) and not ALLOWED.search(keeps)):
            sys.exit(f"the rule {rule} does not tell {breaks!r} from {keeps!r}")
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [name for name in listed if name.endswith(FILES) and not name.startswith(SKIPPED) and os.path.isfile(os.path.join(root, name))]
    texts = [(name, open(os.path.join(root, name), encoding="utf-8").read()) for name in names]
    texts += help_texts(sys.argv[2]) if len(sys.argv) > 2 else []
    wrong = [f"{name}:{line}: {found!r}; write: {instead}" for name, text in texts for line, found, instead in broken(text)]
    print(*wrong[:100], sep="\n")
    print(f"{len(texts)} texts, {len(WORDS)} words and {len(PATTERNS)} patterns: {len(wrong)} found")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
