import { performServerHandshake, type ServerHttp2Stream } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import { encode, Message } from "../foreign/protobuf.ts";
import type { EtcdMember } from "./etcd-member.ts";
import {
  type Compare,
  type CompareTarget,
  EtcdError,
  type EtcdStore,
  type KeyValue,
  type Operation,
  type OperationResult,
  type RangeOptions,
  type RangeResult,
  type Txn,
} from "./etcd-store.ts";
import type { SentEvent, WatchResponse, WatchStream } from "./etcd-watch.ts";

const clusterId = 7;
const raftTerm = 2;

/** The shortest time to live of a lease, in seconds, with etcd's default election timeout. */
const minTtl = 2;

/** Fields of etcd's messages are absent where they are zero. The numbers are those of its rpc.proto and kv.proto. */
function present(value: number): number | undefined {
  return value === 0 ? undefined : value;
}

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

type Unary = (member: EtcdMember, request: Message) => Promise<Buffer>;

const unaryMethods: Readonly<Record<string, Unary>> = {
  "/etcdserverpb.KV/Range": async (member, request) => {
    const options = rangeOf(request);
    const answer = (store: EtcdStore): Buffer =>
      encode({ 1: header(member, store.revision), ...rangeFields(store.range(options)) });
    const isSerializable = request.number(7) === 1;
    return isSerializable ? answer(member.store) : member.linearizable(answer);
  },
  "/etcdserverpb.KV/Txn": async (member, request) => {
    const { revision, succeeded, results } = await member.propose({
      type: "txn",
      txn: txnOf(request),
    });
    const responses = results.map((result) => responseOp(result, revision));
    return encode({ 1: header(member, revision), 2: succeeded || undefined, 3: responses });
  },
  "/etcdserverpb.KV/Put": async (member, request) => {
    const { revision } = await member.propose(single(operationOf(2, request)));
    return encode({ 1: header(member, revision) });
  },
  "/etcdserverpb.KV/DeleteRange": async (member, request) => {
    const { revision, results } = await member.propose(single(operationOf(3, request)));
    const [result] = results;
    const deleted = result?.type === "delete" ? result.deleted.length : 0;
    return encode({ 1: header(member, revision), 2: present(deleted) });
  },
  "/etcdserverpb.KV/Compact": async (member, request) => {
    await member.propose({ type: "compact", revision: request.number(1) });
    return encode({ 1: header(member, member.store.revision) });
  },
  "/etcdserverpb.Lease/LeaseGrant": async (member, request) => {
    const [ttl, id] = [Math.max(minTtl, request.number(1)), request.number(2)];
    const { revision } = await member.propose({ type: "grant", id, ttl });
    return encode({ 1: header(member, revision), 2: id, 3: ttl });
  },
  "/etcdserverpb.Lease/LeaseRevoke": async (member, request) => {
    const { revision } = await member.propose({ type: "revoke", id: request.number(1) });
    return encode({ 1: header(member, revision) });
  },
  "/etcdserverpb.Lease/LeaseTimeToLive": async (member, request) => {
    const id = request.number(1);
    const remainingMs = await member.remainingMs(id);
    const { revision, leases } = member.store;
    const keys = request.number(2) === 1 ? member.store.keysOf(id).map(bytes) : [];
    const ttl = remainingMs === undefined ? -1 : Math.floor(remainingMs / 1_000);
    const own = { 2: id, 3: present(ttl), 4: present(leases.get(id) ?? 0), 5: keys };
    return encode({ 1: header(member, revision), ...own });
  },
  "/etcdserverpb.Maintenance/Status": async (member) =>
    encode({ 1: header(member, member.store.revision), 2: member.version, 4: 1 }),
};

/** Serves etcd's gRPC API for a member of the simulated cluster: over HTTP/2, on the simulated network. */
export class EtcdServer {
  readonly #member: EtcdMember;
  readonly #address: { readonly host: string; readonly port: number };
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  constructor(member: EtcdMember, address: { readonly host: string; readonly port: number }) {
    this.#member = member;
    this.#address = address;
  }

  /** Returns the server, which may not listen yet. */
  start(): Server {
    if (this.#server !== undefined) return this.#server;
    this.#member.start();
    this.#server = createServer((socket) => this.#accept(socket));
    return this.#server.listen(this.#address);
  }

  /** The process ends, and with it all connections. */
  stop(): void {
    this.#server?.close();
    this.#server = undefined;
    this.#member.stop();
    for (const socket of [...this.#sockets]) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    const session = performServerHandshake(socket, {});
    session.on("error", () => {});
    session.on("stream", (stream, headers) => {
      stream.on("error", () => {});
      // It was reset in the chunk that began it.
      if (stream.destroyed) return;
      const path = String(headers[":path"]);
      const unary = unaryMethods[path];
      if (path === "/etcdserverpb.Watch/Watch")
        this.#watch(stream, headers["hasleader"] === "true");
      else if (path === "/etcdserverpb.Lease/LeaseKeepAlive") this.#keepAlive(stream);
      else if (unary !== undefined) this.#answer(stream, unary);
      else fail(stream, new EtcdError(12, `unknown method ${path}`));
    });
  }

  #answer(stream: ServerHttp2Stream, method: Unary): void {
    const framer = new Framer((request) => {
      method(this.#member, request).then(
        (response) => {
          if (stream.destroyed) return;
          stream.respond(responseHeaders, withTrailers);
          stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
          stream.end(framed(response));
        },
        (error: unknown) => fail(stream, error),
      );
    });
    stream.on("data", (chunk: Buffer) => framer.add(chunk));
  }

  /** A response for each request, in their order. */
  #keepAlive(stream: ServerHttp2Stream): void {
    const member = this.#member;
    stream.respond(responseHeaders, withTrailers);
    let done = Promise.resolve();
    const end = (error: EtcdError | undefined): void => {
      if (stream.destroyed || stream.writableEnded) return;
      const trailers = error === undefined ? { "grpc-status": "0" } : trailersOf(error);
      stream.on("wantTrailers", () => stream.sendTrailers(trailers));
      stream.end();
    };
    const framer = new Framer((request) => {
      const id = request.number(1);
      const answer = async (): Promise<void> => {
        const ttl = await member.keepAlive(id);
        const { revision } = member.store;
        const response = encode({ 1: header(member, revision), 2: id, 3: present(ttl) });
        if (!(stream.destroyed || stream.writableEnded)) stream.write(framed(response));
      };
      done = done.then(answer).catch((error: unknown) => {
        if (!(error instanceof EtcdError)) throw error;
        end(error);
      });
    });
    stream.on("data", (chunk: Buffer) => framer.add(chunk));
    stream.on("end", () => void done.then(() => end(undefined)));
  }

  #watch(stream: ServerHttp2Stream, requiresLeader: boolean): void {
    const member = this.#member;
    const { watches } = member;
    let isOpen = true;
    stream.respond(responseHeaders, withTrailers);
    const send = (response: WatchResponse): void => {
      if (isOpen && !stream.destroyed) stream.write(framed(watchResponse(member, response)));
    };
    const watching = watches.open(send);
    const noLeader = (): void => end(new EtcdError(14, "etcdserver: no leader"));
    const release = requiresLeader ? member.requireLeader(noLeader) : () => {};
    const close = (): void => {
      isOpen = false;
      release();
      watches.close(watching);
    };
    const end = (error: EtcdError): void => {
      if (!isOpen) return;
      close();
      stream.on("wantTrailers", () => {
        stream.sendTrailers(trailersOf(error));
        // As etcd does it while the request is not half-closed. In the same step it would drop the trailers.
        setImmediate(() => stream.close());
      });
      stream.end();
    };
    const framer = new Framer((request) => this.#watchRequest(watching, request));
    stream.on("data", (chunk: Buffer) => framer.add(chunk));
    stream.on("end", () => {
      close();
      if (!stream.destroyed) stream.end();
    });
    stream.on("close", close);
  }

  #watchRequest(stream: WatchStream, request: Message): void {
    const { watches } = this.#member;
    const creation = request.message(1);
    if (creation !== undefined) {
      watches.create(stream, {
        ...keysOf(creation),
        startRevision: creation.number(3),
        prevKv: creation.number(6) === 1,
        fragment: creation.number(8) === 1,
        ...{ filters: creation.smallNumbers(5), watchId: creation.number(7) },
      });
    }
    const cancelled = request.message(2);
    if (cancelled !== undefined) watches.cancel(stream, cancelled.number(1));
    if (request.has(3)) watches.requestProgress(stream);
  }
}

const responseHeaders = { "content-type": "application/grpc" };

/** Node.js would add the real date. */
const withTrailers = { waitForTrailers: true, sendDate: false };
const atEnd = { endStream: true, sendDate: false };

function trailersOf(error: EtcdError): Record<string, string> {
  return { "grpc-status": String(error.code), "grpc-message": encodeURIComponent(error.message) };
}

function fail(stream: ServerHttp2Stream, error: unknown): void {
  if (stream.destroyed) return;
  if (!(error instanceof EtcdError)) throw error;
  stream.respond({ ...responseHeaders, ...trailersOf(error) }, atEnd);
}

function framed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Splits what is received into messages. */
class Framer {
  readonly #onMessage: (message: Message) => void;
  #rest: Buffer = Buffer.alloc(0);

  constructor(onMessage: (message: Message) => void) {
    this.#onMessage = onMessage;
  }

  add(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    while (this.#rest.length >= 5) {
      const end = 5 + this.#rest.readUInt32BE(1);
      if (this.#rest.length < end) return;
      const message = new Message(Buffer.from(this.#rest.subarray(5, end)));
      this.#rest = this.#rest.subarray(end);
      this.#onMessage(message);
    }
  }
}

function header({ id }: EtcdMember, revision: number): Buffer {
  return encode({ 1: clusterId, 2: id, 3: present(revision), 4: raftTerm });
}

function keyValue(kv: KeyValue): Buffer {
  const { key, value, createRevision, modRevision, version, lease } = kv;
  return encode({
    ...{ 1: bytes(key), 2: createRevision, 3: modRevision, 4: version },
    ...{ 5: value === "" ? undefined : bytes(value), 6: present(lease) },
  });
}

function rangeFields({
  kvs,
  more,
  count,
}: RangeResult): Record<number, Buffer[] | number | undefined> {
  return { 2: kvs.map(keyValue), 3: more ? 1 : undefined, 4: present(count) };
}

function responseOp(result: OperationResult, revision: number): Buffer {
  const own = encode({ 3: present(revision) });
  if (result.type === "range") return encode({ 1: encode({ 1: own, ...rangeFields(result) }) });
  if (result.type === "put") return encode({ 2: encode({ 1: own }) });
  const deleted = result.deleted.map(keyValue);
  return encode({ 3: encode({ 1: own, 2: present(deleted.length), 3: deleted }) });
}

function sentEvent({ event, previous }: SentEvent): Buffer {
  const { key, revision, kv } = event;
  return encode({
    1: kv === undefined ? 1 : undefined,
    2: kv === undefined ? encode({ 1: bytes(key), 3: revision }) : keyValue(kv),
    3: previous === undefined ? undefined : keyValue(previous),
  });
}

function watchResponse(member: EtcdMember, response: WatchResponse): Buffer {
  const { watchId, revision, created, canceled, compactRevision = 0, cancelReason } = response;
  return encode({
    ...{ 1: header(member, revision), 2: present(watchId) },
    ...{ 3: created || undefined, 4: canceled || undefined, 5: present(compactRevision) },
    ...{ 6: cancelReason, 7: response.fragment || undefined },
    11: response.events.map(sentEvent),
  });
}

function keysOf(message: Message): { key: string; end: string } {
  return {
    key: message.bytes(1).toString("latin1"),
    end: message.bytes(2).toString("latin1"),
  };
}

function rangeOf(message: Message): RangeOptions {
  return {
    ...keysOf(message),
    ...{ limit: message.number(3), revision: message.number(4) },
    ...{ keysOnly: message.number(8) === 1, countOnly: message.number(9) === 1 },
    minModRevision: message.number(10),
  };
}

function single(operation: Operation): { type: "txn"; txn: Txn } {
  return { type: "txn", txn: { compare: [], success: [operation], failure: [] } };
}

/** `kind` is the field of the operation in etcd's RequestOp. */
function operationOf(kind: number, message: Message): Operation {
  const keys = keysOf(message);
  if (kind === 1) return { type: "range", ...rangeOf(message) };
  if (kind === 2) {
    return { type: "put", key: keys.key, value: keys.end, lease: message.number(3) };
  }
  return { type: "delete", ...keys };
}

const targets: readonly CompareTarget[] = ["version", "create", "mod", "value"];
const comparisons = ["=", ">", "<", "!="] as const;

function compareOf(message: Message): Compare {
  const target = targets[message.number(2)] ?? "version";
  const than =
    target === "value"
      ? message.bytes(7).toString("latin1")
      : message.number(4 + targets.indexOf(target));
  const result = comparisons[message.number(1)] ?? "=";
  return { key: message.bytes(3).toString("latin1"), target, result, than };
}

function txnOf(message: Message): Txn {
  const operations = (field: number): Operation[] =>
    message.messages(field).map((operation) => {
      const kind = [1, 2, 3].find((one) => operation.has(one)) ?? 0;
      const own = operation.message(kind);
      if (own === undefined) throw new EtcdError(12, "nested transactions are not modelled");
      return operationOf(kind, own);
    });
  return {
    compare: message.messages(1).map(compareOf),
    success: operations(2),
    failure: operations(3),
  };
}
