import { once } from "node:events";
import { connect, createServer, type Http2Server, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { type RangeRequest, readRangeRequest } from "../../src/etcd/wire/range-request.ts";

/** An HTTP/2 proxy in front of one member of etcd, which passes all calls on, and records them. */
export class RecordingProxy {
  /** The Ranges since the last `reset`, in their order. */
  ranges: RangeRequest[] = [];
  /** Number of calls since then, by path. */
  calls = new Map<string, number>();
  readonly #server: Http2Server = createServer();
  readonly #closing: (() => void)[] = [];
  #isCut = false;

  private constructor(target: string) {
    this.#server.on("session", (session) => {
      const upstream = connect(target);
      upstream.on("error", () => session.destroy());
      upstream.on("close", () => session.close());
      session.on("close", () => upstream.destroy());
      session.on("error", () => upstream.destroy());
      if (this.#isCut) session.destroy();
      this.#closing.push(() => session.destroy());
      session.on("stream", (stream: ServerHttp2Stream, headers) => {
        const path = String(headers[":path"]);
        this.calls.set(path, (this.calls.get(path) ?? 0) + 1);
        const { ":authority": _, ...sent } = headers;
        const call = upstream.request(sent);
        if (path === "/etcdserverpb.KV/Range") this.#record(stream);
        stream.pipe(call);
        call.on("response", (answer, flags) => {
          if (stream.destroyed) return;
          const endStream = (flags & 1) !== 0;
          stream.respond(answer, { waitForTrailers: !endStream, endStream });
        });
        let trailers = {};
        call.on("trailers", (last) => {
          trailers = last;
        });
        stream.on("wantTrailers", () => stream.sendTrailers(trailers));
        call.pipe(stream);
        call.on("error", () => stream.close());
        stream.on("error", () => call.close());
        stream.on("close", () => call.close());
      });
    });
  }

  static async to(target: string): Promise<RecordingProxy> {
    const proxy = new RecordingProxy(target);
    await once(proxy.#server.listen(0, "127.0.0.1"), "listening");
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The Ranges of more than one key. */
  get rangesOfSeveral(): RangeRequest[] {
    return this.ranges.filter(({ rangeEnd }) => rangeEnd.length > 0);
  }

  reset(): void {
    this.ranges = [];
    this.calls = new Map();
  }

  /** Ends all connections, and each new one, until `join`. */
  cut(): void {
    this.#isCut = true;
    for (const close of this.#closing.splice(0)) close();
  }

  join(): void {
    this.#isCut = false;
  }

  close(): void {
    this.cut();
    this.#server.close();
  }

  #record(stream: ServerHttp2Stream): void {
    const chunks: Buffer[] = [];
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", () => {
      const request = readRangeRequest(Buffer.concat(chunks).subarray(5));
      if (request !== undefined) this.ranges.push(request);
    });
  }
}
