import type { IncomingHttpHeaders } from "node:http2";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { Turns } from "../../../src/base/turns.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import type { ServedResource } from "../../../src/server/server.ts";
import { UncachedResource } from "../../../src/server/services/uncached-resource.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import type { Backend, OpenBackend } from "../../contract/backends.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import type { ManualTimers } from "../limits/manual-timers.ts";
import { serve } from "../served.ts";
import type { TestClient } from "../test-client.ts";
import { authenticatorsOf, clientAs, headersOf } from "./callers.ts";
import type { RandomRequest, RequestWorld } from "./escape-requests.ts";
import { callers, hidden, keys, markedValue, policyText, root } from "./escape-rights.ts";

/** How long the server's time advances in a turn of the event loop, in milliseconds: waits of 3 s end soon. */
const turnMs = 100;

/** Number of turns that a stream is read for after the changes. */
const streamTurns = 20;

/** Everything that a call received. */
export interface Received {
  /** All bytes, headers and trailers; those that are encoded also decoded. */
  readonly text: string;
  /** The messages, as they came. */
  readonly messages: Buffer;
  /** The gRPC status code; undefined: the call was cancelled by the test. */
  readonly code: number | undefined;
}

/** A service with marked objects, over one kind of storage, and connections of its callers. */
export class EscapeWorld implements RequestWorld {
  readonly #backends: ReadonlyMap<string, Backend>;
  readonly #connections: ReadonlyMap<string, RawConnection>;
  readonly #clock: ManualTimers;
  readonly #root: TestClient;
  readonly tokens: string[] = [];
  historyId = "";
  revision = 0;
  #round = 0;
  #isOver = false;

  private constructor(
    backends: ReadonlyMap<string, Backend>,
    port: number,
    clock: ManualTimers,
    client: TestClient,
  ) {
    this.#backends = backends;
    this.#clock = clock;
    this.#root = client;
    this.#connections = new Map(callers.map((name) => [name, new RawConnection(port)]));
    onTestFinished(() => {
      this.#isOver = true;
    });
  }

  static async open(open: OpenBackend): Promise<EscapeWorld> {
    const backends = new Map<string, Backend>();
    for (const name of ["pods", "raw", hidden]) backends.set(name, await open());
    const clock = (backends.get("pods") as Backend).clock;
    const served = new Map<string, ServedResource>();
    const caches: Cacher[] = [];
    const logger = pino({ level: "silent" });
    for (const [name, backend] of backends) {
      const attributes = new AttributeReader(new JsonCodec({ fields: ["phase"] }), clock, logger);
      const storage = backend.storage();
      if (name === "raw") {
        const reads = {
          limiter: new UpstreamLimiter(clock),
          scheduler: new Turns(clock),
        };
        served.set(
          name,
          new UncachedResource(name, storage, new ObjectAttributes(attributes), reads),
        );
        continue;
      }
      const options = { storage, clock, logger, name, attributes, indexes: ["phase"] };
      const cacher = new Cacher({ ...options, consistencyIntervalMs: 0 });
      onTestFinished(() => cacher.close());
      caches.push(cacher);
      served.set(name, cacher);
      cacher.start();
    }
    const authorizer = new Authorizer(policyOf(policyText));
    const authenticators = authenticatorsOf([root, ...callers]);
    // The time that passes here is longer than connections live.
    const limits = { maxStreamAgeMs: 0 };
    const { server } = await serve(served, clock, { authenticators, authorizer, limits });
    const world = new EscapeWorld(backends, server.port, clock, clientAs(server, root));
    void world.#passTime();
    while (!caches.every(({ ready }) => ready)) await nextTurn();
    await world.change();
    return world;
  }

  /** Changes every object of every resource behind the service's back: some are deleted in every other round. */
  async change(): Promise<void> {
    this.#round++;
    for (const [resource, backend] of this.#backends) {
      const revision = await backend.write(
        keys.map((key, index) =>
          index % 3 === this.#round % 6
            ? { type: "delete", key }
            : {
                type: "put",
                key,
                value: Buffer.from(markedValue(resource, key, this.#round + index)),
              },
        ),
      );
      if (resource === "pods") this.revision = revision;
    }
  }

  /** Gets page tokens as a caller with every right, and the id of the history. */
  async learn(): Promise<void> {
    for (const prefix of ["", "a/", "b/", "d/"]) {
      const request = { resource: "pods", prefix, page_size: 1 };
      const page = await this.#root.list(request);
      this.historyId = page.history_id;
      if (page.next_page_token !== "") this.tokens.push(page.next_page_token);
    }
    this.tokens.splice(0, Math.max(0, this.tokens.length - 50));
  }

  /** Makes the calls at once, changes all objects meanwhile, and returns what each received. */
  async call(requests: readonly RandomRequest[]): Promise<Received[]> {
    const calls = requests.map((request) => this.#send(request));
    const first = calls.map(({ responded }) => responded);
    await Promise.all(first);
    await this.change();
    for (let turn = 0; turn < streamTurns; turn++) await nextTurn();
    return Promise.all(calls.map(({ finish }) => finish()));
  }

  #send({ caller, path, encode, further }: RandomRequest): {
    responded: Promise<unknown>;
    finish: () => Promise<Received>;
  } {
    const connection = this.#connections.get(caller);
    if (connection === undefined) throw new Error(`${caller} has no connection.`);
    const { stream, ended } = further
      ? connection.open(path, headersOf(caller))
      : connection.call(path, encode(this), headersOf(caller));
    if (further) {
      for (const message of [encode(this), ...further(this)]) stream.write(framed(message));
    }
    const received: string[] = [];
    const chunks: Buffer[] = [];
    const responded = Promise.withResolvers<void>();
    const keep = (headers: IncomingHttpHeaders): void => {
      received.push(decodedHeaders(headers));
    };
    stream.on("response", keep).on("trailers", keep);
    stream.on("data", (chunk: Buffer) => {
      received.push(chunk.toString("latin1"));
      chunks.push(chunk);
      responded.resolve();
    });
    void ended.then(() => responded.resolve());
    const finish = async (): Promise<Received> => {
      // A stream that is open continues indefinitely.
      if (!stream.closed) stream.close(8);
      const { code } = await ended;
      const text = received.join("");
      return { text: `${text}\n${decodedTokens(text)}`, messages: Buffer.concat(chunks), code };
    };
    return { responded: responded.promise, finish };
  }

  async #passTime(): Promise<void> {
    while (!this.#isOver) {
      this.#clock.advance(turnMs);
      await nextTurn();
    }
  }
}

/** The headers as text, the message and the error details decoded. */
function decodedHeaders(headers: IncomingHttpHeaders): string {
  const details = Buffer.from(String(headers["grpc-status-details-bin"] ?? ""), "base64");
  const message = decodeURIComponent(String(headers["grpc-message"] ?? ""));
  return `${JSON.stringify(headers)}\n${message}\n${details.toString("latin1")}\n`;
}

/** Whatever in the text could be a page token, decoded. */
function decodedTokens(text: string): string {
  const tokens = [...text.matchAll(/[\w-]{30,}/g)].flatMap(([found]) =>
    // The length before a token may be a character of its alphabet.
    [found, found.slice(1), found.slice(2)].map((token) =>
      Buffer.from(token, "base64url").toString("latin1"),
    ),
  );
  return tokens.join("\n");
}
