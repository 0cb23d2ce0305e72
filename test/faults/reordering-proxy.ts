import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import type { Seeded } from "./seeded.ts";
import { type ResponseKind, WatchReordering } from "./watch-reordering.ts";

/** Within which time a response is sent, if the order is left to chance, in milliseconds. */
const maxDelayMs = 4;

/** Metadata of a Watch stream whose responses a test holds back and passes on itself. */
export const heldStream = { "x-held": "true" };

/**
 * An HTTP/2 proxy in front of one member of etcd. It passes all calls on as they are, except that the responses of Watch come
 * in another order that etcd might have chosen: any, if it is left to chance, and on streams with the metadata `heldStream`
 * as the test says.
 */
export class ReorderingProxy {
  readonly #target: string;
  readonly #server: Http2Server;
  readonly #random: Seeded | undefined;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #streams = new Set<WatchPair>();
  readonly #held = new Set<ResponseKind>();
  #heldRequests = 0;

  private constructor(target: string, random: Seeded | undefined) {
    this.#target = target;
    this.#random = random;
    this.#server = createServer();
    this.#server.on("session", (session) => this.#accept(session));
  }

  /** `target` is an http URL. With `random` the order of responses is left to chance. */
  static async to(target: string, random?: Seeded): Promise<ReorderingProxy> {
    const proxy = new ReorderingProxy(target, random);
    await once(proxy.#server.listen(0, "127.0.0.1"), "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Number of chunks of requests that were received on held streams. */
  get heldRequests(): number {
    return this.#heldRequests;
  }

  /** Number of responses of a kind that are held back. */
  waiting(kind: ResponseKind): number {
    return [...this.#streams].reduce((sum, { order }) => sum + order.waiting(kind), 0);
  }

  /** Holds the responses of this kind back, while those of the other pass. */
  hold(kind: ResponseKind): void {
    this.#held.add(kind);
  }

  /** Passes the next response of a kind that is held back. */
  passNext(kind: ResponseKind): void {
    for (const { order } of this.#streams) order.sendNext(kind);
  }

  /** Holds nothing back any more. */
  release(): void {
    this.#held.clear();
    for (const stream of this.#streams) this.#pass(stream);
  }

  /** Closes all connections. New ones are accepted. */
  cut(): void {
    for (const session of this.#sessions) session.destroy();
  }

  async close(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.cut();
    await closed;
  }

  #accept(session: ServerHttp2Session): void {
    const upstream = connect(this.#target);
    this.#sessions.add(session);
    for (const each of [session, upstream]) {
      each.on("error", () => {});
      each.on("close", () => {
        session.destroy();
        upstream.destroy();
      });
    }
    session.on("close", () => this.#sessions.delete(session));
    session.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      this.#relay(stream, headers, upstream);
    });
  }

  #relay(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    upstream: ClientHttp2Session,
  ): void {
    stream.on("error", () => {});
    if (upstream.destroyed) {
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    const call = upstream.request(headers, { endStream: false });
    stream.pipe(call);
    passEnds(stream, call);
    const isHeld = headers["x-held"] === heldStream["x-held"];
    const isWatch = headers[":path"] === "/etcdserverpb.Watch/Watch";
    if (isWatch && (isHeld || this.#random !== undefined)) this.#reorder(stream, call);
    else call.pipe(stream);
  }

  #reorder(stream: ServerHttp2Stream, call: ClientHttp2Stream): void {
    const pair = new WatchPair(stream);
    this.#streams.add(pair);
    stream.on("data", () => {
      this.#heldRequests++;
    });
    call.on("data", (chunk: Buffer) => {
      pair.add(chunk);
      this.#pass(pair);
    });
    call.on("end", () => stream.end());
    stream.on("close", () => this.#streams.delete(pair));
  }

  /** Sends what is not held back. */
  #pass(pair: WatchPair): void {
    const { order } = pair;
    if (this.#random === undefined) {
      for (const kind of ["control", "channel"] as const) {
        while (!this.#held.has(kind) && order.waiting(kind) > 0) order.sendNext(kind);
      }
    } else if (!pair.isDelayed) {
      const random = this.#random;
      pair.isDelayed = true;
      setTimeout(
        () => {
          pair.isDelayed = false;
          if (order.sendSome(random)) this.#pass(pair);
        },
        random.between(0, maxDelayMs),
      );
    }
  }
}

/** A Watch stream of a client, and the responses for it. */
class WatchPair {
  readonly order: WatchReordering;
  isDelayed = false;
  #rest: Buffer = Buffer.of();

  constructor(stream: ServerHttp2Stream) {
    this.order = new WatchReordering((frame) => {
      if (stream.writable) stream.write(frame);
    });
  }

  /** Adds bytes of etcd's response. */
  add(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    while (this.#rest.length >= 5 && this.#rest.length >= 5 + this.#rest.readUInt32BE(1)) {
      const size = 5 + this.#rest.readUInt32BE(1);
      this.order.add(this.#rest.subarray(0, size));
      this.#rest = this.#rest.subarray(size);
    }
  }
}

/** Passes on the headers, the trailers, and the ends and resets of both sides. */
function passEnds(stream: ServerHttp2Stream, call: ClientHttp2Stream): void {
  let trailers: IncomingHttpHeaders = {};
  call.on("error", () => {});
  call.on("response", (received) => {
    if (!stream.destroyed) stream.respond(received, { waitForTrailers: true });
  });
  call.on("trailers", (received: IncomingHttpHeaders) => {
    trailers = received;
  });
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  call.on("close", () => {
    if (call.rstCode !== constants.NGHTTP2_NO_ERROR && !stream.closed) stream.close(call.rstCode);
  });
  stream.on("close", () => {
    if (!call.closed) call.close(stream.rstCode);
  });
}
