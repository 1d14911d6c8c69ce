# SPDX-License-Identifier: Apache-2.0
"""One gRPC call without a schema: `serve CERT KEY` on ports 50051 (TLS) and 50052 (plain),
or `call NAME:PORT [CA]`; without CA the call is in plain text."""
import concurrent.futures
import sys

import grpc

METHOD = "/echo.Echo/Say"


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"echo of " + request)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def serve(cert, key):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[Echo()])
    server.add_secure_port("[::]:50051", grpc.ssl_server_credentials([(read(key), read(cert))]))
    server.add_insecure_port("[::]:50052")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


def call(target, ca=None):
    channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(read(ca))) if ca else grpc.insecure_channel(target)
    try:
        print(channel.unary_unary(METHOD)(b"this", timeout=50).decode())
    except grpc.RpcError as e:
        sys.exit(f"{e.code().name}: {e.details()}")


if __name__ == "__main__":
    {"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])
