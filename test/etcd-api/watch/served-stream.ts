import { EventEmitter } from "node:events";
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import { pino } from "pino";
import { type Reason, WatchFanoutError } from "../../../src/base/errors.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { Upstream, type UpstreamOptions } from "../../../src/etcd/client/upstream.ts";
import type { UpstreamConnection } from "../../../src/etcd/client/upstream-connection.ts";
import {
  type CachedResource,
  CachedResources,
} from "../../../src/etcd-api/cached/cached-resources.ts";
import { NewestHeader } from "../../../src/etcd-api/cached/newest-header.ts";
import type { EtcdCall } from "../../../src/etcd-api/calls/etcd-call.ts";
import type { KeyRights } from "../../../src/etcd-api/rights/key-rights.ts";
import { WatchCall } from "../../../src/etcd-api/watch/watch-call.ts";
import { WatchService } from "../../../src/etcd-api/watch/watch-service.ts";
import { anonymous } from "../../../src/identity/identity.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { RawCall as ServedCall } from "../../../src/server/calls/methods.ts";
import { createServiceContext } from "../../../src/server/calls/service-context.ts";
import type { ServiceOptions } from "../../../src/server/calls/service-options.ts";
import { Rounds } from "../../../src/server/kernel/rounds.ts";
import type { RoundReader } from "../../../src/storage/storage.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import { FakeClock } from "../../fake-clock.ts";
import { encode, type Fields, type Message } from "../../foreign/protobuf.ts";
import type { RawGrpc } from "../raw-grpc.ts";
import { WatchClient, type WatchResponse } from "../watch-client.ts";
import { type FakeUpstreamCall, fakeUpstreamCall } from "./fake-upstream-call.ts";

/** Interval of progress notifications of these services, in milliseconds. */
export const notifyMs = 10_000;

export const failure = (reason: Reason): WatchFanoutError => new WatchFanoutError(reason, reason);

/** A watcher of a cache, whose batches and end the test gives. */
export class FakeWatcher {
  readonly request: CacheWatchRequest;
  heldBytes = 0;
  ended: Error | null | undefined;
  isClosed = false;
  /** Number of responses that the client has accepted. */
  acceptances = 0;
  readonly #cache: FakeCache;
  readonly #batches: WatchBatch[] = [];
  #listener = (): void => {};
  #needsNotify = true;

  constructor(cache: FakeCache, request: CacheWatchRequest) {
    this.#cache = cache;
    this.request = request;
  }

  get hasPending(): boolean {
    return this.#batches.length > 0;
  }

  get syncedRevision(): number | undefined {
    if (this.hasPending || this.ended !== undefined) return undefined;
    return Math.max(this.#cache.dispatched, this.request.afterRevision ?? 0);
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  read(): WatchBatch | undefined {
    const batch = this.#batches.shift();
    this.#needsNotify = batch === undefined;
    return batch;
  }

  readAfterOffers(reader: RoundReader): void {
    this.#cache.readAfterOffers(reader);
  }

  accepted(): void {
    this.acceptances++;
  }

  close(): void {
    this.isClosed = true;
    this.ended ??= null;
    this.#batches.length = 0;
    this.#notify();
  }

  offer(batch: WatchBatch): void {
    this.#batches.push(batch);
    this.#notify();
  }

  fail(error: Error): void {
    this.ended = error;
    this.#notify();
  }

  #notify(): void {
    if (!this.#needsNotify) return;
    this.#needsNotify = false;
    this.#listener();
  }
}

/** A cache of the keys below a prefix. */
export class FakeCache {
  readonly name: string;
  ready = true;
  revision = 10;
  oldestRevision = 5;
  historyGeneration = 1;
  upstreamFailure: WatchFanoutError | undefined;
  readonly watchers: FakeWatcher[] = [];
  /** etcd's revision; undefined: it can't be asked. The cache is there once `reach` is called. */
  current: number | undefined = 10;
  /** What was asked of it: "current", or a known revision. */
  readonly asked: (number | "current")[] = [];
  #reached: (() => void)[] = [];
  /** Whether questions are answered at once, not by `reach`. */
  reachesAtOnce = true;
  #dispatched: number | undefined;
  /** Those that read when all watchers were offered the events. */
  #readers: Set<RoundReader> | undefined;

  constructor(name: string) {
    this.name = name;
  }

  /** The revision up to which its watchers were offered everything. */
  get dispatched(): number {
    return this.#dispatched ?? this.revision;
  }

  set dispatched(revision: number | undefined) {
    this.#dispatched = revision;
  }

  get open(): readonly FakeWatcher[] {
    return this.watchers.filter(({ isClosed }) => !isClosed);
  }

  watch(request: CacheWatchRequest): FakeWatcher {
    const watcher = new FakeWatcher(this, request);
    this.watchers.push(watcher);
    return watcher;
  }

  readAfterOffers(reader: RoundReader): void {
    if (this.#readers === undefined) reader.roundOffered();
    else this.#readers.add(reader);
  }

  reachCurrentRevision(): Promise<number> {
    return this.#ask("current");
  }

  reachKnownRevision(revision: number): Promise<number> {
    return this.#ask(revision);
  }

  /** Answers what was asked. */
  reach(): void {
    for (const reached of this.#reached.splice(0)) reached();
  }

  /** Writes keys, all at once, and offers the events to all open watchers. */
  put(...keys: readonly string[]): number {
    this.revision++;
    this.offer(this.revision, ...keys.map((key) => putAt(key, this.revision)));
    return this.revision;
  }

  offer(revision: number, ...events: readonly WatchEvent[]): void {
    const readers = new Set<RoundReader>();
    this.#readers = readers;
    for (const watcher of this.open) {
      const wanted = events.filter(({ object }) => isIn(object.key, watcher.request.scope));
      if (wanted.length > 0) watcher.offer(new WatchBatch(revision, wanted));
    }
    this.#readers = undefined;
    for (const reader of readers) reader.roundOffered();
  }

  #ask(what: number | "current"): Promise<number> {
    this.asked.push(what);
    return new Promise((resolve, reject) => {
      const answer = (): void => {
        if (this.current === undefined) reject(failure("UPSTREAM_UNAVAILABLE"));
        else resolve(this.current);
      };
      if (this.reachesAtOnce) answer();
      else this.#reached.push(answer);
    });
  }
}

function isIn(key: string, scope: CacheWatchRequest["scope"]): boolean {
  if ("key" in scope) return key === scope.key;
  return "prefix" in scope && key.startsWith(scope.prefix);
}

export function putAt(key: string, revision: number, previous?: StoredObject): WatchEvent {
  const created = previous?.createRevision ?? revision;
  const object = new StoredObject(key, Buffer.from("v"), created, revision, 1, 0n);
  return new WatchEvent(previous === undefined ? "ADDED" : "MODIFIED", object, previous);
}

/** A service with the caches of /a/ and /b/, and an etcd whose responses the test sends. */
export class FakeFront {
  readonly clock = new FakeClock();
  readonly newestHeader = new NewestHeader();
  readonly caches = { a: new FakeCache("a"), b: new FakeCache("b") };
  readonly resources: readonly CachedResource[];
  readonly cached: CachedResources;
  readonly calls: Rounds<EtcdCall>;
  readonly service: WatchService;
  readonly context: ReturnType<typeof createServiceContext>;
  /** What etcd has compacted. */
  compacted = 0;
  /** What etcd was sent on its streams of Watch: "create KEY ID from REVISION", "cancel ID", "progress". */
  readonly sent: string[] = [];
  /** The calls to etcd. */
  readonly upstreamCalls: FakeUpstreamCall[] = [];
  /** The headers of these. */
  readonly upstreamHeaders: OutgoingHttpHeaders[] = [];

  /** `hasResponded`: whether etcd has, with the revision 9. */
  constructor(hasResponded = true, options: Partial<UpstreamOptions> = {}) {
    const { clock, newestHeader } = this;
    const response = encode({ 1: encode({ 1: 7, 2: 8, 3: 9, 4: 1 }) });
    if (hasResponded) newestHeader.observeMessage({ isInUse: true }, response);
    this.cached = new CachedResources(clock, newestHeader);
    this.resources = Object.entries(this.caches).map(
      ([name, cacher]) =>
        ({
          ...{ name, cacher, keys: { prefix: Buffer.from(`/${name}/`) } },
          storage: {
            get: async () => ({ revision: cacher.revision }),
            isAvailable: async (revision: number) => revision >= this.compacted,
          },
        }) as unknown as CachedResource,
    );
    this.cached.serve(this.resources);
    const logger = pino({ level: "silent" });
    const endpoints = ["http://127.0.0.1:1"];
    const certificates = undefined;
    const upstream = new Upstream({ endpoints, certificates, clock, logger, ...options });
    const request = (headers: OutgoingHttpHeaders) => this.#open(headers);
    const connection = { isInUse: true, request };
    upstream.available = () => connection as unknown as UpstreamConnection;
    this.calls = new Rounds<EtcdCall>(clock, {
      ...{ intervalMs: 1_000, visitsPerStep: 64, visit: (call) => call.check(clock.now()) },
    });
    this.service = new WatchService({
      ...{ upstream, newestHeader, clock, cached: this.cached, calls: this.calls },
      progressIntervalMs: notifyMs,
    });
    this.context = createServiceContext({ clock, logger } as unknown as ServiceOptions, undefined);
  }

  /** `rights`: of a caller that may not do everything. */
  stream(metadata: IncomingHttpHeaders = {}, rights?: Partial<KeyRights>): FakeStream {
    return new FakeStream(this, metadata, rights as KeyRights | undefined);
  }

  /** etcd answers on the stream that was opened last, or on that with this index. */
  etcd(fields: Fields, revision: number, index = -1): void {
    const message = encode({ 1: encode({ 1: 7, 2: 8, 3: revision, 4: 1 }), ...fields });
    this.upstreamCalls.at(index)?.emit("data", framed(message));
  }

  /** Events of a watch at etcd; `isFragment`: others of the response follow. */
  etcdEvents(id: number, revisions: readonly number[], isFragment = false): void {
    const events = revisions.map((revision) => encode({ 2: encode({ 1: "/k", 3: revision }) }));
    this.etcd({ 2: id, 7: isFragment || undefined, 11: events }, revisions.at(-1) ?? 0);
  }

  /** etcd ends a call. */
  etcdEnds(details: string, index = -1): void {
    const call = this.upstreamCalls.at(index);
    call?.emit("trailers", { "grpc-status": "14", "grpc-message": details });
    call?.emit("close");
  }

  #open(headers: OutgoingHttpHeaders): FakeUpstreamCall {
    const call = fakeUpstreamCall((request) => this.#note(request));
    this.upstreamCalls.push(call);
    this.upstreamHeaders.push(headers);
    return call;
  }

  #note(request: Message): void {
    const [create, cancel] = [request.message(1), request.message(2)];
    if (create !== undefined) {
      this.sent.push(`create ${create.text(1)} ${create.number(7)} from ${create.number(3)}`);
    } else {
      this.sent.push(cancel === undefined ? "progress" : `cancel ${cancel.number(1)}`);
    }
  }
}

function framed(message: Uint8Array): Buffer {
  const frame = Buffer.alloc(5 + message.length);
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, 5);
  return frame;
}

/** A client's stream of Watch, without a network: whatever is sent waits for the client if it does not accept it. */
export class FakeStream {
  readonly client: WatchClient;
  readonly call: WatchCall;
  /** What the stream has ended with. */
  status: WireStatus | undefined;
  /** Whether messages are accepted when they are sent; otherwise by `accept`. */
  acceptsAtOnce = true;
  /** Of the messages that were accepted at once, whether another one was to follow. */
  readonly followed: boolean[] = [];
  isPaused = false;
  readonly #front: FakeFront;
  readonly #messages: Buffer[] = [];
  #accept: (() => void) | undefined;
  #taken = 0;

  constructor(front: FakeFront, metadata: IncomingHttpHeaders, rights?: KeyRights) {
    this.#front = front;
    const connection = {};
    const request = Object.assign(new EventEmitter(), {
      destroyed: false,
      pause: () => {
        this.isPaused = true;
      },
      resume: () => {
        this.isPaused = false;
      },
    });
    const send = (frame: Buffer, onAccepted: () => void): void => {
      this.#receive(frame);
      this.#accept = onAccepted;
    };
    const stream = this;
    const call = {
      ...{ connection, request, identity: anonymous, headerBytes: 100, requestBytes: 0 },
      owner: front.context.callerLimits.callers.ownerOf({
        ...{ connection, identity: anonymous, address: "10.0.0.1:1" },
      }),
      get isOver() {
        return stream.status !== undefined;
      },
      ...{ onOver: () => {}, onClosed: (listener: () => void) => listener() },
      ...{ withdraw: () => false, reset: () => {} },
      sendAtOnce: (frame: Buffer, isFollowed: boolean) => {
        if (this.acceptsAtOnce) {
          this.followed.push(isFollowed);
          this.#receive(frame);
        }
        return this.acceptsAtOnce;
      },
      send,
      sendParts: (parts: readonly Uint8Array[], onAccepted: () => void) =>
        send(Buffer.concat(parts), onAccepted),
      end: (status: WireStatus) => {
        this.status = status;
      },
    } as unknown as ServedCall;
    this.call = new WatchCall(call, metadata, front.context, front.service, rights);
    const grpc = {
      open: () => ({
        messages: this.#messages,
        send: (message: Uint8Array) => request.emit("data", framed(message)),
      }),
    };
    this.client = new WatchClient(grpc as unknown as RawGrpc);
    this.call.start();
  }

  /** Creates watches, and waits until what is asked for them is answered. */
  async create(...watches: readonly Fields[]): Promise<void> {
    for (const fields of watches) this.client.create(fields);
    await this.#front.clock.settle();
  }

  /** As `create`, with all requests in one piece. */
  async createTogether(...watches: readonly Fields[]): Promise<void> {
    const requests = watches.map((fields) => framed(encode({ 1: encode(fields) })));
    this.call["call"].request.emit("data", Buffer.concat(requests));
    await this.#front.clock.settle();
  }

  /** The client accepts what is outstanding. */
  accept(): void {
    const accept = this.#accept;
    this.#accept = undefined;
    accept?.();
  }

  /** What came since the last call, as text: the id, and what it says. */
  take(): string[] {
    const { responses } = this.client;
    const taken = responses.slice(this.#taken).map(textOf);
    this.#taken = responses.length;
    return taken;
  }

  #receive(frames: Buffer): void {
    for (let at = 0; at < frames.length; ) {
      const end = at + 5 + frames.readUInt32BE(at + 1);
      this.#messages.push(Buffer.from(frames.subarray(at + 5, end)));
      at = end;
    }
  }
}

function textOf(response: WatchResponse): string {
  const { id, created, canceled, compactRevision, reason, fragment, revision, events } = response;
  const kinds = [
    ...(created ? ["created"] : []),
    ...(canceled ? ["canceled"] : []),
    ...(compactRevision > 0 ? [`compacted ${compactRevision}`] : []),
    ...(reason === "" ? [] : [reason]),
    ...(fragment ? ["fragment"] : []),
    ...events.map(
      ({ type, kv, previous }) =>
        `${type} ${kv.key}@${kv.mod}${previous ? ` after ${previous.mod}` : ""}`,
    ),
  ];
  return `${id}: ${kinds.length === 0 ? "progress" : kinds.join(", ")} at ${revision}`;
}
