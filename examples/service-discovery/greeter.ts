/**
 * A greeter, and a client that calls all greeters, which resolver.ts finds. In four terminals, or more:
 *
 *     npm start -- --resource endpoints=/endpoints/
 *
 *     npm run example examples/service-discovery/greeter.ts serve Ada 127.0.0.1:7001
 *     npm run example examples/service-discovery/greeter.ts serve Ben 127.0.0.1:7002
 *
 *     npm run example examples/service-discovery/greeter.ts call watchfanout:///default/greeter
 *
 *     bin/watch-fanout put -r endpoints default/greeter '{"addresses":["127.0.0.1:7001"]}'
 *     bin/watch-fanout put -r endpoints default/greeter '{"addresses":["127.0.0.1:7001","127.0.0.1:7002"]}'
 *
 * examples/controller writes such endpoints by itself.
 */
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import {
  Client,
  credentials,
  type MethodDefinition,
  Server,
  ServerCredentials,
} from "@grpc/grpc-js";
import { connect } from "watch-fanout/client";
import { registerWatchFanoutResolver } from "./resolver.ts";

/** The messages are plain text. */
const serialize = (text: string): Buffer => Buffer.from(text);
const deserialize = (bytes: Buffer): string => bytes.toString();
const greet: MethodDefinition<string, string> = {
  path: "/greeter.Greeter/Greet",
  requestStream: false,
  responseStream: false,
  requestSerialize: serialize,
  requestDeserialize: deserialize,
  responseSerialize: serialize,
  responseDeserialize: deserialize,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "every-ms": { type: "string", default: "1000" } },
});
const [command, first, second] = positionals;
if (command === "serve" && first !== undefined && second !== undefined) serve(first, second);
else if (command === "call" && first !== undefined) await call(first);
else throw new Error("Usage: greeter.ts serve NAME HOST:PORT | call TARGET");

function serve(name: string, address: string): void {
  const server = new Server();
  server.addService(
    { greet },
    {
      greet: (asked: { request: string }, respond: (error: null, text: string) => void) =>
        respond(null, `${name} greets ${asked.request}`),
    },
  );
  server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
    if (error !== null) throw error;
    console.log(`${name} greets on port ${port}.`);
  });
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => server.tryShutdown(() => {}));
  }
}

/** Calls all greeters round-robin, until it is stopped. */
async function call(target: string): Promise<void> {
  const watchFanout = connect({
    address: process.env["WATCH_FANOUT_ADDRESS"] ?? "127.0.0.1:50051",
  });
  registerWatchFanoutResolver(watchFanout);
  const greeters = new Client(target, credentials.createInsecure(), {
    "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  });
  const stopping = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());
  while (!stopping.signal.aborted) {
    console.log(await asked(greeters));
    await delay(Number(values["every-ms"]), undefined, stopping).catch(() => {});
  }
  greeters.close();
  watchFanout.close();
}

/** Returns the response of a greeter, or its error. */
function asked(greeters: Client): Promise<string> {
  const { path, requestSerialize, responseDeserialize } = greet;
  return new Promise((resolve) => {
    greeters.makeUnaryRequest(
      path,
      requestSerialize,
      responseDeserialize,
      "you",
      { deadline: Date.now() + 2_000 },
      (error, text) => resolve(text ?? `No greeter: ${error?.message}`),
    );
  });
}
