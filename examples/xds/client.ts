/**
 * Calls a service of gRPC by xDS, without a proxy: the client learns from watch-fanout which instances there are, and divides
 * its calls between them. It prints the instance that has answered, or the error, one call a line.
 *
 *     GRPC_XDS_BOOTSTRAP=examples/xds/bootstrap.json npm run example examples/xds/client.ts xds:///greeter
 *
 * docs/xds.md says what is stored for that. go/main.go is the same in Go.
 */
import { setTimeout as delay } from "node:timers/promises";
import { Client, credentials, type ServiceError } from "@grpc/grpc-js";
import { register } from "@grpc/grpc-js-xds";

const intervalMs = 20;
const deadlineMs = 10_000;

register();
const [, , target = "xds:///greeter"] = process.argv;
const client = new Client(target, credentials.createInsecure());
for (;;) {
  process.stdout.write(`${await check()}\n`);
  await delay(intervalMs);
}

/** Asks an instance for its health, with an empty request. Resolves to its address, or to the error. */
function check(): Promise<string> {
  return new Promise((resolve) => {
    const call = client.makeUnaryRequest(
      "/grpc.health.v1.Health/Check",
      (request: Buffer) => request,
      (response) => response,
      Buffer.alloc(0),
      { deadline: Date.now() + deadlineMs },
      (error: ServiceError | null) => {
        const why = `${error?.details}`.replaceAll("\n", " ");
        resolve(error === null ? call.getPeer() : `error: ${why}`);
      },
    );
  });
}
