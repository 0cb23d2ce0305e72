import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import {
  createFileRegistry,
  createRegistry,
  type DescMessage,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Metadata } from "@grpc/grpc-js";
import { pino } from "pino";
import { systemClock as clock } from "../../../src/base/clock.ts";
import { CallPipeline } from "../../../src/server/call-pipeline.ts";
import { createServiceContext } from "../../../src/server/calls/service-context.ts";
import type { RequestHead, WebDoor, WebRequest } from "../../../src/server/calls/web-door.ts";
import { Connections } from "../../../src/server/http2/connections.ts";
import { socketOf } from "../../../src/server/http2/frames/framed-connection.ts";
import { OpenCalls } from "../../../src/server/http2/open-calls.ts";
import { HandshakeFailures } from "../../../src/server/limits/handshake-failures.ts";
import { Http2Defences } from "../../../src/server/limits/http2-defences.ts";
import { defaultServerLimits } from "../../../src/server/limits/server-limits.ts";
import { Listener } from "../../../src/server/listener/listener.ts";
import { ConnectDoor } from "../../../src/web/connect-door.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import { decodeRpcStatus } from "../../../src/wire/rpc-status.ts";
import { registry as served } from "../served-schema.ts";
import { type CallFacts, ConformanceService } from "./service.ts";

/*
 * A server under test for the Connect project's conformance suite: the pipeline of calls and the door of this service, with the
 * suite's own methods in place of its own. The suite starts it, and says on its standard input what to serve.
 */

const [descriptors = ""] = process.argv.slice(2);
const registry = createRegistry(
  createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors))),
  served.getMessage("google.rpc.Status") as DescMessage,
);
const messageNamed = (name: string): DescMessage =>
  registry.getMessage(`connectrpc.conformance.v1.${name}`) as DescMessage;

interface Asked {
  readonly useTls: boolean;
  readonly clientTlsCert: Uint8Array;
  readonly messageReceiveLimit: number;
  readonly serverCreds?: { readonly cert: Uint8Array; readonly key: Uint8Array };
}

/** Remembers what the calls of a door have beside their messages, and sends headers that their method sets. */
class ObservedDoor implements WebDoor {
  readonly facts = new WeakMap<object, CallFacts>();
  readonly #door = new ConnectDoor();

  requestAt(
    head: RequestHead,
    shapeOf: Parameters<WebDoor["requestAt"]>[1],
  ): WebRequest | undefined {
    const request = this.#door.requestAt(head, shapeOf);
    if (request === undefined) return undefined;
    const { timeoutMs } = request;
    return {
      ...request,
      translate: (carrier, context) => {
        const sent: Record<string, string | string[]> = {};
        const sendHeaders = carrier.sendHeaders.bind(carrier);
        carrier.sendHeaders = (headers) => sendHeaders({ ...headers, ...sent });
        const call = request.translate(carrier, context);
        if (call === undefined) return undefined;
        // The suite expects no details that its methods did not send, as those with this service's reasons.
        const end = call.end.bind(call);
        call.end = (why) => end(hasOwnReason(why) ? { ...why, metadata: new Metadata() } : why);
        const headers = Object.entries(head.headers).map(([name, value]) => {
          const text = String(value);
          return { name, value: name.startsWith(":") ? [text] : text.split(/, /) };
        });
        this.facts.set(call, { headers, timeoutMs, sent, isBare: call.body.isBare === true });
        return call;
      },
    };
  }
}

function hasOwnReason({ metadata }: WireStatus): boolean {
  const details = metadata.get("grpc-status-details-bin")[0];
  return details !== undefined && decodeRpcStatus(details as Buffer)?.domain === "watchfanout";
}

async function start(asked: Asked): Promise<{ port: number }> {
  const logger = pino({ level: "error" }, pino.destination(2));
  const { messageReceiveLimit: limit } = asked;
  const limits = { ...defaultServerLimits, ...(limit > 0 && { maxRequestBytes: limit }) };
  const handshakes = new HandshakeFailures(clock, logger, "gRPC");
  const defences = new Http2Defences(clock, logger, limits, handshakes);
  const context = createServiceContext({ resources: new Map(), clock, logger, limits }, defences);
  const connections = new Connections(clock, { ...limits, isUnix: false }, defences);
  const webDoor = new ObservedDoor();
  const factsOf = (call: object): CallFacts => webDoor.facts.get(call) as CallFacts;
  const { methods } = new ConformanceService(registry, limits.maxRequestBytes, factsOf);
  const openCalls = new OpenCalls(context, connections, undefined, methods);
  const service = { context, methods, authentication: undefined, drain: () => {} };
  const pipeline = new CallPipeline(service, openCalls, { webDoor });
  const { callers } = context.callerLimits;
  const { cert, key } = asked.serverCreds ?? {};
  const tls = asked.useTls &&
    cert !== undefined &&
    key !== undefined && {
      ...{ cert: Buffer.from(cert), key: Buffer.from(key) },
      ...(asked.clientTlsCert.length > 0 && {
        clientCa: Buffer.from(asked.clientTlsCert),
        clientAuth: "require" as const,
      }),
    };
  const listener = new Listener({
    ...{ clock, logger, random: Math.random, limits, connections, defences, handshakes },
    ...{ tls: tls === false ? undefined : tls, pages: undefined, isForwarder: () => false },
    listener: {
      begun: (session) => {
        callers.connected(session, socketOf(session).remoteAddress);
        pipeline.begin(session);
      },
      opened: (...opened) => pipeline.accept(...opened),
      http1: {
        ...{ clock, requestPool: context.requestPool },
        begun: (connection) => {
          callers.connected(connection, connection.socket.remoteAddress);
          pipeline.beginHttp1(connection);
        },
        opened: (connection, _request, response) => {
          const isTaken = pipeline.acceptHttp1(connection, response);
          if (isTaken) connections.begun(connection, connection.socket);
          return isTaken;
        },
      },
    },
  });
  await listener.listen({ host: "127.0.0.1", port: 0 });
  return { port: (listener as Pick<AddressInfo, "port">).port };
}

async function main(): Promise<void> {
  let input = Buffer.alloc(0);
  for await (const chunk of process.stdin) {
    input = Buffer.concat([input, chunk as Buffer]);
    if (input.length >= 4 && input.length >= 4 + input.readUInt32BE(0)) break;
  }
  const asked = fromBinary(messageNamed("ServerCompatRequest"), input.subarray(4));
  const { port } = await start(asked as unknown as Asked);
  const { serverCreds } = asked as unknown as Asked;
  const answer = toBinary(messageNamed("ServerCompatResponse"), {
    $typeName: "connectrpc.conformance.v1.ServerCompatResponse",
    ...{ host: "127.0.0.1", port, pemCert: serverCreds?.cert ?? new Uint8Array() },
  } as never);
  const size = Buffer.alloc(4);
  size.writeUInt32BE(answer.length);
  process.stdout.write(Buffer.concat([size, answer]));
}

await main();
