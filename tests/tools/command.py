"""Runs the built command, for the Python tests beside this file."""
import json
import subprocess
import sys


class Command:
    """The command at `path`. A call that ends otherwise than expected fails the test with everything it printed."""

    def __init__(self, path):
        self.path = path

    def __call__(self, *arguments, stdin="", code=0):
        """The stdout of `reshard ARGUMENTS...`."""
        done = subprocess.run([self.path, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=300,
                              check=False)
        if done.returncode != code:
            sys.exit(f"exit code {done.returncode} instead of {code}: reshard {' '.join(map(repr, arguments))}\n"
                     f"stdout: {done.stdout[:2000]}\nstderr: {done.stderr[:4000]}")
        return done.stdout

    def json(self, *arguments, **options):
        return json.loads(self(*arguments, **options))

    def batch(self, problems, *arguments, code=0):
        """The answers of `reshard plan --batch -`, one a problem, in order."""
        text = self("plan", "--batch", "-", *arguments, stdin="".join(json.dumps(p) + "\n" for p in problems), code=code)
        answers = [json.loads(line) for line in text.splitlines()]
        assert [a["id"] for a in answers] == [p["id"] for p in problems], "batch answers are out of order or missing"
        return answers
