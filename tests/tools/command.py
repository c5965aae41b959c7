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

    def fails(self, *arguments, code):
        """The stderr of a call that ends with that code."""
        done = subprocess.run([self.path, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != code:
            sys.exit(f"exit code {done.returncode} instead of {code}: reshard {' '.join(map(repr, arguments))}: {done.stderr[:4000]}")
        return done.stderr

    def json(self, *arguments, **options):
        return json.loads(self(*arguments, **options))

    def judged(self, plans):
        """Every plan agrees with what `reshard check` derives from its layouts alone."""
        lines = "".join(json.dumps(plan) + "\n" for plan in plans)
        done = subprocess.run([self.path, "check", "-"], input=lines, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            wrong = [line for line in done.stdout.splitlines() if "agrees" not in line and "unchecked" not in line]
            sys.exit(f"reshard check ends with {done.returncode}: {done.stderr[:2000]}\n" + "\n".join(wrong[:40]))

    def batch(self, problems, *arguments):
        """The plans of `reshard plan --batch -`, one per problem, in order. A problem without a plan fails the test."""
        done = subprocess.run([self.path, "plan", "--batch", "-", *arguments], capture_output=True, text=True, timeout=300,
                              input="".join(json.dumps(p) + "\n" for p in problems), check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        for problem, answer in zip(problems, answers):
            assert problem["id"] == answer["id"], f"out of order: {problem} was answered with {answer}"
            if "error" in answer:
                sys.exit(f"{problem}: {answer['error']['message']}")
        if done.returncode != 0 or len(answers) != len(problems):
            sys.exit(f"exit code {done.returncode}, {len(answers)} answers to {len(problems)} problems: {done.stderr[:4000]}")
        self.judged(answers)
        return answers
