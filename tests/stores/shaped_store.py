#!/usr/bin/env python3
"""A server that speaks enough of S3 for obstore, with a latency for every request and a rate for every connection: what
an object store is like, on one machine. Objects are in memory. It checks no signature.

usage: shaped_store.py PORT [--latency SECONDS] [--rate BYTES_PER_SECOND]
"""
import argparse
import asyncio
import hashlib
import itertools
import re
import time
import urllib.parse
from xml.sax.saxutils import escape

CHUNK = 128 << 10


class Server:
    def __init__(self, latency, rate):
        self.latency, self.rate = latency, rate
        self.objects = {}  # path -> (bytes, etag)
        self.uploads = {}  # id -> {part: bytes}
        self.numbers = itertools.count()

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split(" ", 2)
                headers = {}
                while (line := (await reader.readline()).decode().strip()):
                    key, _, value = line.partition(":")
                    headers[key.lower()] = value.strip()
                if headers.get("expect") == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await self.receive(reader, int(headers.get("content-length", 0)))
                await asyncio.sleep(self.latency)
                status, more, answer = self.answer(method, target, headers, body)
                length = more.pop("content-length", len(answer))
                head = "".join(f"{key}: {value}\r\n" for key, value in {**more, "content-length": length}.items())
                writer.write(f"HTTP/1.1 {status} .\r\n{head}\r\n".encode())
                await self.send(writer, answer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def receive(self, reader, length):
        body, start = bytearray(), time.monotonic()
        while len(body) < length:
            body += await reader.readexactly(min(CHUNK, length - len(body)))
            await self.keep_rate(len(body), start)
        return bytes(body)

    async def send(self, writer, answer):
        start = time.monotonic()
        for at in range(0, len(answer), CHUNK):
            writer.write(answer[at : at + CHUNK])
            await writer.drain()
            await self.keep_rate(at + CHUNK, start)

    async def keep_rate(self, count, start):
        if self.rate and (wait := start + count / self.rate - time.monotonic()) > 0:
            await asyncio.sleep(wait)

    def answer(self, method, target, headers, body):
        path, _, query = target.partition("?")
        path, terms = urllib.parse.unquote(path), urllib.parse.parse_qs(query, keep_blank_values=True)
        if method == "GET" and "list-type" in terms:
            return self.list(path.strip("/"), terms)
        if method == "POST" and "uploads" in terms:
            number = str(next(self.numbers))
            self.uploads[number] = {}
            return 200, {}, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode()
        if method == "POST" and "uploadId" in terms:
            parts = self.uploads.pop(terms["uploadId"][0])
            return self.keep(path, b"".join(parts[number] for number in sorted(parts)), xml=True)
        if method == "PUT" and "uploadId" in terms:
            self.uploads[terms["uploadId"][0]][int(terms["partNumber"][0])] = body
            return 200, {"etag": f'"{len(body)}"'}, b""
        if method == "PUT":
            if headers.get("if-none-match") == "*" and path in self.objects:
                return 412, {}, b""
            return self.keep(path, body)
        if method == "DELETE":
            self.objects.pop(path, None)
            return 204, {}, b""
        if path not in self.objects:
            return 404, {}, b""
        data, etag, modified = self.objects[path]
        if headers.get("if-match", etag) != etag:
            return 412, {}, b""
        facts = {"etag": etag, "last-modified": modified}
        if method == "HEAD":
            return 200, {**facts, "content-length": len(data)}, b""
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", "")):
            first, last = int(found[1]), min(int(found[2]), len(data) - 1)
            if first >= len(data):
                return 416, {"content-range": f"bytes */{len(data)}"}, b""
            return 206, {**facts, "content-range": f"bytes {first}-{last}/{len(data)}"}, memoryview(data)[first : last + 1]
        return 200, facts, data

    def keep(self, path, data, xml=False):
        etag = '"' + hashlib.blake2b(data[:1024] + str((len(data), time.time())).encode(), digest_size=16).hexdigest() + '"'
        self.objects[path] = (data, etag, time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()))
        text = f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
        return 200, {"etag": etag}, text.encode() if xml else b""

    def list(self, bucket, terms):
        prefix, delimiter = terms.get("prefix", [""])[0], terms.get("delimiter", [""])[0]
        found, folders = [], set()
        for path, (data, etag, _) in self.objects.items():
            key = path[len(bucket) + 2 :]
            if not path.startswith(f"/{bucket}/") or not key.startswith(prefix):
                continue
            if delimiter and delimiter in key[len(prefix) :]:
                folders.add(prefix + key[len(prefix) :].split(delimiter)[0] + delimiter)
                continue
            found.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>{escape(etag)}</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        below = "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders)
        return 200, {"content-type": "application/xml"}, (
            '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>' + "".join(found) + below + "</ListBucketResult>"
        ).encode()


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--rate", type=float, default=5e6)
    arguments = parser.parse_args()
    server = Server(arguments.latency, arguments.rate)
    async with await asyncio.start_server(server.serve, "127.0.0.1", arguments.port, limit=1 << 20) as listening:
        print("ready", flush=True)
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
