"""Serves the files of one folder over HTTP, in ranges, for as long as the process that started it lives.

usage: serve.py FOLDER ADDRESS

Run as a script, by a Python that imports nothing beside it: it takes none of the time of the process whose weights it
serves. Prints its port as its first line. A file's name is its password: nothing is listed, and names are random. When
the process that started it has ended, or closes its standard input, the folder is removed.
"""

import http.server
import os
import re
import select
import shutil
import sys
import threading

_NAME = re.compile(r"/([0-9a-f]{32})\Z")
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})\Z")
_IDLE_SECONDS = 60


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    folder = ""

    def do_GET(self) -> None:
        name, range_ = _NAME.match(self.path), _RANGE.match(self.headers.get("Range", ""))
        try:
            file = os.open(os.path.join(self.folder, name.group(1)), os.O_RDONLY) if name else -1
        except FileNotFoundError:
            file = -1
        if file < 0:
            self.send_error(404)
            return
        try:
            size = os.fstat(file).st_size
            begin, end = (int(range_.group(1)), int(range_.group(2)) + 1) if range_ else (0, size)
            if not begin < end <= size:
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            while begin < end:
                begin += os.sendfile(self.connection.fileno(), file, begin, end - begin)
        finally:
            os.close(file)

    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # a reader has gone


def main(folder: str, address: str) -> None:
    parent = os.getppid()
    try:
        _Handler.folder = folder
        server = _Server((address, 0), _Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.write(1, f"{server.server_address[1]}\n".encode())
        # A process forked from the one that started this may hold the other end of the pipe open.
        while os.getppid() == parent:
            if select.select([sys.stdin], [], [], 1.0)[0] and not os.read(sys.stdin.fileno(), 1):
                break
    except BrokenPipeError:
        pass  # it has ended before it could be told
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
