"""A real server that speaks S3, and a proxy before it that spoils requests. It is moto, or the one that listens at the port
RESHARD_TEST_S3_PORT of this host, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; what is in its bucket "bucket" is lost."""
import http.client
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port, process, seconds=60):
    """Waits until the process listens at the port of this host."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            time.sleep(0.1)


class Moto:
    """moto_server of the environment `prefix`."""

    def __init__(self, prefix=sys.prefix):
        self.port = free_port()
        command = [os.path.join(prefix, "bin", "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answers(self.port, self.process)

    def close(self):
        self.process.kill()
        self.process.wait()


class Running:
    """A server that is there already."""

    def __init__(self, port):
        import boto3

        self.port = port
        store = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
        if "bucket" not in [one["Name"] for one in store.list_buckets()["Buckets"]]:
            return
        for page in store.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
            for one in page.get("Contents", []):
                store.delete_object(Bucket="bucket", Key=one["Key"])
        for upload in store.list_multipart_uploads(Bucket="bucket").get("Uploads", []):
            store.abort_multipart_upload(Bucket="bucket", Key=upload["Key"], UploadId=upload["UploadId"])
        store.delete_bucket(Bucket="bucket")

    def close(self):
        pass


def s3(prefix=sys.prefix):
    """(server, Proxy): a server that speaks S3, behind a proxy, which is what s3:// means in this process and its children.
    `prefix` is the environment that has moto."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_PROFILE", "http_proxy", "HTTP_PROXY"):
        os.environ.pop(name, None)
    running = os.environ.get("RESHARD_TEST_S3_PORT")
    if not running:
        os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    server = Running(int(running)) if running else Moto(prefix)
    proxy = Proxy(server.port)
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    return server, proxy


class Request:
    """What a fault is asked about; `number` counts from 1 since the faults were set."""

    def __init__(self, number, method, path, headers):
        self.number, self.method, self.path, self.headers = number, method, path, headers


class Proxy:
    """Passes requests on. `fault(request)` returns None, or what happens to it:
        ("status", 503)  it is answered so, and not passed on
        ("cut", k)       the connection is cut after k bytes of the answer's body
        ("short", k)     the answer has k bytes less, and says so
        ("hide", regex)  keys that match are not in the answer, a list
    and may do something itself; `after(request)` is called when it has been passed on and not yet been answered."""

    def __init__(self, upstream):
        self.upstream, self.fault, self.after, self.count = upstream, None, None, 0
        self.lock, self.seen = threading.Lock(), []
        self.port = free_port()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.server.handle_error = lambda *_: None  # clients are killed
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def set(self, fault=None, after=None):
        with self.lock:
            self.fault, self.after, self.count, self.seen = fault, after, 0, []

    def close(self):
        self.server.shutdown()

    def _handler(self):
        proxy, local = self, threading.local()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def pass_on(self):
                with proxy.lock:
                    proxy.count += 1
                    request = Request(proxy.count, self.command, self.path, self.headers)
                    proxy.seen.append((self.command, self.path))
                    fault, after = proxy.fault, proxy.after
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                what, value = (fault(request) if fault else None) or (None, None)
                if what == "status":
                    return self.answer(value, [], b"")
                if not hasattr(local, "upstream"):
                    local.upstream = http.client.HTTPConnection("127.0.0.1", proxy.upstream, timeout=60)
                headers = {key: text for key, text in self.headers.items() if key.lower() != "expect"}
                local.upstream.request(self.command, self.path, body, headers)
                answer = local.upstream.getresponse()
                data = answer.read()
                if after:
                    after(request)
                facts = [(key, text) for key, text in answer.getheaders() if key.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server")]
                if what == "hide":
                    data = re.sub(rb"<Contents>(?:(?!</Contents>).)*?</Contents>", lambda one: b"" if re.search(value, one[0]) else one[0], data, flags=re.S)
                if what == "short":
                    data = data[: len(data) - value]
                length = answer.getheader("content-length") if self.command == "HEAD" else None
                self.answer(answer.status, facts, data, cut=value if what == "cut" else None, length=length)

            def answer(self, status, headers, data, cut=None, length=None):
                try:
                    self.send_response(status)
                    for key, text in headers:
                        self.send_header(key, text)
                    self.send_header("Content-Length", length or str(len(data)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(data[:cut])
                    if cut is not None:
                        self.wfile.flush()
                        self.close_connection = True
                        self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    self.close_connection = True  # the client was killed

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

        return Handler
