"""Checkpoints on https servers, good ones and others: what is read, what is said, and what is never shown.

usage: https_test.py RESHARD
"""

import concurrent.futures
import contextlib
import email.utils
import http.server
import itertools
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

COMMAND = sys.argv[1]
FIXTURES = pathlib.Path(__file__).parents[1] / "checkpoint/fixtures"
SECRET = "s3cr3t-of-mine"


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder by ranges. `spoil` may change what an answer is: see Handler.do_GET."""

    daemon_threads = True

    def __init__(self, folder, spoil=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.spoil = spoil or {}
        self.requests = []
        self.version = 1
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        pass  # clients that hang up in the middle


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # noqa: N802: http.server's name
        url = urllib.parse.urlsplit(self.path)
        spoil = self.server.spoil
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers)))
            number = len(self.server.requests)
        if spoil.get("needs") == "query" and url.query != f"token={SECRET}":
            return self.answer(403, {})
        if spoil.get("needs") == "user" and not self.headers.get("Authorization", "").startswith("Basic "):
            return self.answer(401, {})
        if "redirect" in spoil and number <= spoil.get("redirects", 1):
            return self.answer(302, {"Location": spoil["redirect"].replace("PATH", self.path)})
        if spoil.get("fails_first", 0) >= number:
            return self.answer(503, {})
        path = self.server.folder / urllib.parse.unquote(url.path).lstrip("/")
        if not path.is_file():
            return self.answer(404, {}, b"nothing here, " * 40_000)
        content = path.read_bytes()
        headers = {"ETag": f'"{self.server.version}-{len(content)}"',
                   "Last-Modified": email.utils.formatdate(1.6e9, usegmt=True)}
        if spoil.get("etag") == "none":
            headers["ETag"] = None
        if spoil.get("etag") == "nothing":
            headers = {}
        if spoil.get("changes") == path.name:
            before = [asked for asked, _ in self.server.requests[: number - 1] if asked.endswith(path.name)]
            headers["ETag"] = f'"other {len(before) > 1}"'
        if spoil.get("ranges") is False:
            return self.answer(200, headers, content)
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last), len(content) - 1)
        if first >= len(content):
            if spoil.get("no_validator_of_nothing"):
                headers = {}
            return self.answer(416, {**headers, "Content-Range": f"bytes */{len(content)}"})
        body = content[first : last + 1]
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        if "content_range" in spoil:
            headers["Content-Range"] = spoil["content_range"]
        if spoil.get("body") == "short":
            headers["Content-Length"] = str(len(body))
            self.close_connection = True
            return self.answer(206, headers, body[:-1])
        if spoil.get("body") == "less":
            return self.answer(206, headers, body[:-1])
        if spoil.get("body") == "endless":
            self.send_response(206)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            while True:
                self.wfile.write(b"x" * 65536)
        if spoil.get("body") == "drips" and path.suffix == ".distcp":
            self.send_response(206)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.5)
            return None
        if spoil.get("status") and path.suffix == ".distcp":
            return self.answer(spoil["status"], {})
        if spoil.get("body") == "stalls" and path.suffix == ".distcp":
            self.send_response(206)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.flush()
            time.sleep(30)
            return None
        return self.answer(206, headers, body)


class ServedFolder:
    """A folder to be served, and a certificate that the command trusts."""

    def __init__(self, folder):
        self.folder = folder
        self.key, self.certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.key, "-out",
                        self.certificate], check=True, capture_output=True)
        self.results = itertools.count()

    @contextlib.contextmanager
    def serve(self, folder, **spoil):
        server = Server(folder, spoil)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        server.url = f"https://localhost:{server.server_address[1]}"
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()

    def run(self, *words, code=0, trusted=True, **variables):
        environment = {**os.environ, "RESHARD_HTTPS_TIMEOUT_S": "2", "no_proxy": "localhost", **variables}
        if trusted:
            environment["SSL_CERT_FILE"] = str(self.certificate)
        done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False, timeout=120,
                              env=environment)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert SECRET not in done.stdout + done.stderr, done
        return done

    def convert(self, source, code=0, flags=(), **more):
        result = self.folder / f"result{next(self.results)}"
        done = self.run("convert", source, result, *flags, code=code, **more)
        if code == 0:
            assert all(SECRET not in path.read_text(errors="replace") for path in result.rglob("*") if path.is_file())
        else:
            assert not result.exists()
        return result, done


ROWS = ("--mesh", "{x:3}", "--layout", "[<x>, ...]")


def test_what_is_read(place):
    """A file, folders of each format, and what lies beside them."""
    with place.serve(FIXTURES) as server:
        for name, path in (("grid2x3_threads", "grid2x3_threads"), ("fsdp_adamw", "fsdp_adamw/")):
            result, _ = place.convert(f"{server.url}/{path}", flags=[*ROWS, "--verify"])
            place.run("verify", FIXTURES / name, result)
            place.run("verify", f"{server.url}/{path}", result)
    model = place.folder / "a model"
    model.mkdir()
    place.run("convert", FIXTURES / "fsdp_adamw", model / "x", "--to", "hf", "--weights-only", code=0)
    (model / "x/config.json").write_text('{"a": 1}')
    with place.serve(model) as server:
        result, done = place.convert(f"{server.url}/x", flags=["--to", "hf", "--verify"])
        assert (result / "config.json").read_text() == '{"a": 1}', done.stdout
        place.run("verify", model / "x", result)
        listing = json.loads(place.run("inspect", f"{server.url}/x/model.safetensors", "--json").stdout)
        assert listing["format"] == "safetensors", listing
        assert all("?" not in path for path, _ in server.requests)
    with place.serve(place.folder) as server:  # a path with a blank
        place.run("verify", f"{server.url}/a%20model/x", model / "x")


def test_names(place):
    """Whatever is in a name: it is the file of that name that is read, and nothing else."""
    folder = place.folder / "names"
    folder.mkdir()
    odd = ("a%41", "aA", "q?b", "q", "h#b", "\u00e9")
    for number, name in enumerate(odd):
        header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        (folder / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes([number]))
    index = {"weight_map": {name: f"{name}.safetensors" for name in odd}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "merges.txt").write_text("")
    with place.serve(folder, no_validator_of_nothing=True) as server:
        for name in odd:
            url = f"{server.url}/{urllib.parse.quote(name)}.safetensors"
            listed = json.loads(place.run("inspect", url, "--json").stdout)
            assert [tensor["name"] for tensor in listed["tensors"]] == [name], listed
        place.run("verify", server.url, folder)


def test_ways_there(place):
    with place.serve(FIXTURES) as server, place.serve(FIXTURES, redirect=f"{server.url}PATH", redirects=9) as first:
        place.run("verify", f"{first.url}/single", FIXTURES / "single")
    with place.serve(FIXTURES, fails_first=2) as server:
        place.run("inspect", f"{server.url}/single")
    with place.serve(FIXTURES, etag="none") as server:
        place.convert(f"{server.url}/single", flags=ROWS)


def test_secrets(place):
    with place.serve(FIXTURES, needs="query") as server:
        place.convert(f"{server.url}/single?token={SECRET}", flags=[*ROWS, "--verify"])
        place.run("inspect", f"{server.url}/single?token={SECRET}", "--json")
        place.run("inspect", f"{server.url}/nothing?token={SECRET}", code=5)
        assert "denies" in place.run("inspect", f"{server.url}/single", code=5).stderr
    for bad in (f"https:/me:{SECRET}@localhost/x", f"https://me:pa/{SECRET}@localhost/x", f"https://me:{SECRET}@/x"):
        place.run("inspect", bad, code=4)
        place.run("verify", bad, FIXTURES / "single", code=4)
    to_server = f"https://me:{SECRET}@localhost/x"
    for flags in ((), ("--dry-run",), ("--clean",), ("--overwrite",)):
        assert "not to https servers" in place.run("convert", FIXTURES / "single", to_server, *ROWS, *flags, code=4).stderr
    with place.serve(FIXTURES, needs="user") as server:
        with_user = server.url.replace("https://", f"https://me:{SECRET}@")
        place.convert(f"{with_user}/single", flags=ROWS)
        # Nobody else gets them.
        with place.serve(FIXTURES, redirect=f"{server.url}PATH".replace("localhost", "127.0.0.1"), redirects=99) as first:
            moved = first.url.replace("https://", f"https://me:{SECRET}@")
            assert "denies" in place.run("inspect", f"{moved}/single", code=5).stderr
    with place.serve(FIXTURES) as server:
        place.run("inspect", f"{server.url}/single", HF_TOKEN=SECRET)
        assert all("Authorization" not in headers for _, headers in server.requests)


def nobody_there(place):
    with place.serve(FIXTURES) as server:
        url = server.url
    assert "onnect" in place.run("inspect", f"{url}/single", code=5).stderr


def test_what_goes_wrong(place):
    def said(part, *flags, code=4, **spoil):
        variables = {name: spoil.pop(name) for name in list(spoil) if name.isupper()}
        with place.serve(FIXTURES, **spoil) as server:
            _, done = place.convert(f"{server.url}/single", code=code, flags=flags or ROWS, **variables)
            assert part in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1, done.stderr

    # At the same time: most of it is waiting for what does not come.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        tries = []

        def try_(*words, **spoil):
            tries.append(pool.submit(said, *words, **spoil))

        try_("whole files only", ranges=False)
        try_("neither ETag nor Last-Modified", etag="nothing")
        try_("written to while it was read", changes="__0_0.distcp")
        try_("the server answered for the range", content_range="bytes 5-9/100")
        try_("the server answered for the range", content_range="bytes 0-99/x")
        try_("the server answered for the range", content_range=None)
        try_("the server answered for the range", body="less")
        try_("more than was asked for", body="endless")
        try_("redirects", redirect="PATH", redirects=99, code=5)
        try_("another protocol", redirect="http://localhost:1/PATH", code=5)
        try_("answers 503", fails_first=10_000, code=5)
        try_("imeout", body="stalls", code=5)
        try_("imeout", body="drips", code=5, RESHARD_HTTPS_TIMEOUT_S="1")
        try_("refuses the request (418)", status=418)
        try_("refuses the request (304)", status=304)
        tries.append(pool.submit(nobody_there, place))
        for one in tries:
            one.result()

    with place.serve(FIXTURES) as server:
        assert "no such file or directory" in place.run("inspect", f"{server.url}/nothing", code=5).stderr
        assert "ertificate" in place.run("inspect", f"{server.url}/single", code=5, trusted=False).stderr
        url = server.url
    assert "those of https:// are" in place.run("inspect", "http://localhost/x", code=4).stderr
    assert ".." in place.run("inspect", f"{url}/a/%2e%2e/b", code=4).stderr
    assert "control" in place.run("inspect", f"{url}/a%0d%0aHost:b", code=4).stderr


def main():
    with tempfile.TemporaryDirectory(prefix="reshard-https-") as name:
        place = ServedFolder(pathlib.Path(name))
        for test in (test_what_is_read, test_names, test_ways_there, test_secrets, test_what_goes_wrong):
            test(place)
            print(f"{test.__name__}: passed", flush=True)


if __name__ == "__main__":
    main()
