"""Reads the messages of one call until they have as many bytes as asked for: main.py ADDRESS METHOD REQUEST BYTES.

The request is in hexadecimal. Prints the bytes and the digest of all messages.
"""

import hashlib
import sys

import grpc

address, method, request, expected = sys.argv[1:]
digest = hashlib.sha256()
received = 0
with grpc.insecure_channel(address) as channel:
    call = channel.unary_stream(method)(bytes.fromhex(request), timeout=60)
    for message in call:
        digest.update(message)
        received += len(message)
        if received >= int(expected):
            break
    call.cancel()
print("python", received, digest.hexdigest())
