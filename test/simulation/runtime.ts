import childProcess from "node:child_process";
import crypto from "node:crypto";
import {
  connect,
  type Http2Session,
  performServerHandshake,
  type ServerHttp2Stream,
} from "node:http2";
import module, { createRequire } from "node:module";
import net from "node:net";
import { cpuUsage } from "node:process";
import { duplexPair, Transform } from "node:stream";
import timers from "node:timers";
import timersPromises from "node:timers/promises";
import zlib from "node:zlib";
import type { Seeded } from "../faults/seeded.ts";
import type { Network } from "./network.ts";
import type { Processes } from "./processes.ts";
import type { ScheduledEvent, Scheduler } from "./scheduler.ts";

/** What replaces the outside of the process. */
interface Outside {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly processes: Processes;
  /** For what production code takes from the global source of random numbers. */
  readonly random: Seeded;
}

/** 2026-01-01, when every simulation begins. */
const epochMs = Date.UTC(2026, 0, 1);

let outside: Outside | undefined;

function current(): Outside {
  if (outside === undefined) throw new Error("Nothing is simulated now.");
  return outside;
}

/** The time that has really passed, in milliseconds, and what the processor has really worked. */
const realPerformanceNow = performance.now.bind(performance);
export const realTime = {
  now: realPerformanceNow,
  cpuMs: (): number => {
    const { user, system } = cpuUsage();
    return (user + system) / 1_000;
  },
};

/**
 * Connects this process to a simulation, in the place of the system's time, network, processes and random numbers: for the code under test,
 * Node.js' own code and that of the libraries.
 *
 * What is left is deterministic: JavaScript in one thread, whose callbacks Node.js runs in the order in which they were
 * scheduled, and nghttp2, which is called from there. There is no thread (the policy has some, and is not used; what is
 * compressed in threads is done at once), no file is read after the start, and nothing here depends on when objects are collected.
 */
export async function connectTo(simulation: Outside): Promise<void> {
  replaced ??= replace();
  await replaced;
  outside = simulation;
  forgetConnections();
}

/** A simulation that has failed leaves connections in the pool of grpc-js, whose timers never fire. */
function forgetConnections(): void {
  const pools = createRequire(import.meta.url)("@grpc/grpc-js/build/src/subchannel-pool.js") as {
    getSubchannelPool(isGlobal: boolean): object;
  };
  Object.assign(pools.getSubchannelPool(true), { pool: Object.create(null), cleanupTimer: null });
}

let replaced: Promise<void> | undefined;

/** Replaces the globals and built-in modules, once for the process. */
async function replace(): Promise<void> {
  await replaceHttp2();
  replaceTimers();
  replaceTime();
  replaceRandom();
  Object.assign(net, {
    connect: (...given: readonly unknown[]) => current().network.connect(...given),
    createConnection: (...given: readonly unknown[]) => current().network.connect(...given),
    createServer: (...given: readonly unknown[]) => current().network.createServer(...given),
  });
  Object.assign(childProcess, { fork: () => current().processes.fork() });
  replaceZlib();
  module.syncBuiltinESMExports();
}

type Callback = (...given: unknown[]) => void;

/** What setTimeout and setInterval return. */
class SimulatedTimeout {
  readonly #callback: () => void;
  readonly #delayMs: number;
  readonly #repeats: boolean;
  #event: ScheduledEvent | undefined;

  constructor(callback: () => void, delayMs: number, repeats: boolean) {
    this.#callback = callback;
    this.#delayMs = delayMs >= 1 && delayMs <= 2 ** 31 - 1 ? delayMs : 1;
    this.#repeats = repeats;
    this.refresh();
  }

  refresh(): this {
    this.close();
    this.#event = current().scheduler.after(this.#delayMs, `timer of ${this.#delayMs}`, () => {
      this.#event = undefined;
      if (this.#repeats) this.refresh();
      this.#callback();
    });
    return this;
  }

  close(): this {
    this.#event?.cancel();
    this.#event = undefined;
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }
}

function replaceTimers(): void {
  const { setImmediate: realSetImmediate, clearTimeout: realClearTimeout } = globalThis;
  const set =
    (repeats: boolean) =>
    (callback: Callback, delayMs = 0, ...given: unknown[]) =>
      new SimulatedTimeout(() => callback(...given), delayMs, repeats);
  const clear = (timeout: unknown): void => {
    if (timeout instanceof SimulatedTimeout) timeout.close();
    else realClearTimeout(timeout as NodeJS.Timeout);
  };
  const replaced = {
    setTimeout: set(false),
    setInterval: set(true),
    clearTimeout: clear,
    clearInterval: clear,
    setImmediate: (callback: Callback, ...given: unknown[]) => {
      current().scheduler.active();
      return realSetImmediate(callback, ...given);
    },
  };
  Object.assign(globalThis, replaced);
  Object.assign(timers, replaced);
  Object.assign(timersPromises, { setTimeout: delay });
  AbortSignal.timeout = (delayMs) => {
    const controller = new AbortController();
    set(false)(() => controller.abort(new DOMException("Timeout", "TimeoutError")), delayMs);
    return controller.signal;
  };
}

/** As the one of node:timers/promises. */
function delay<T>(delayMs = 1, value?: T, options: { signal?: AbortSignal } = {}): Promise<T> {
  const { signal } = options;
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const abort = (): void => {
      timeout.close();
      reject(signal?.reason);
    };
    const timeout = new SimulatedTimeout(
      () => {
        signal?.removeEventListener("abort", abort);
        resolve(value as T);
      },
      delayMs,
      false,
    );
    signal?.addEventListener("abort", abort, { once: true });
  });
}

function replaceTime(): void {
  const sinceEpoch = (): number => {
    const { scheduler } = current();
    return Math.floor(epochMs + scheduler.now() + scheduler.dayAheadMs);
  };
  const RealDate = Date;
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, given, newTarget) =>
      Reflect.construct(target, given.length === 0 ? [sinceEpoch()] : given, newTarget),
    apply: () => new RealDate(sinceEpoch()).toString(),
    get: (target, name) =>
      name === "now" ? sinceEpoch : (Reflect.get(target, name, target) as unknown),
  });
  performance.now = () => current().scheduler.now();
  const nanoseconds = (): bigint => BigInt(Math.floor(current().scheduler.now() * 1e6));
  const hrtime = (before: [number, number] = [0, 0]): [number, number] => {
    const sum = nanoseconds() - BigInt(before[0]) * 1_000_000_000n - BigInt(before[1]);
    return [Number(sum / 1_000_000_000n), Number(sum % 1_000_000_000n)];
  };
  process.hrtime = Object.assign(hrtime, { bigint: nanoseconds });
}

function replaceRandom(): void {
  Math.random = () => current().random.next();
  const randomBytes = (size: number): Buffer => {
    const bytes = Buffer.alloc(size);
    for (let i = 0; i < size; i++) bytes[i] = current().random.between(0, 255);
    return bytes;
  };
  const randomUUID = (): string => {
    const hex = randomBytes(16).toString("hex");
    const parts = [
      [0, 8],
      [8, 12],
      [13, 16],
      [17, 20],
      [20, 32],
    ] as const;
    const [a, b, c, d, e] = parts.map(([from, to]) => hex.slice(from, to));
    return `${a}-${b}-4${c}-8${d}-${e}`;
  };
  Object.assign(crypto, { randomBytes, randomUUID });
}

type Compressed = (error: Error | null, result?: Buffer) => void;

/** How long a thread takes to compress something, in milliseconds at most. */
const compressingMs = 2;

/** What Node.js does in threads is done at once, and its result comes later. */
function replaceZlib(): void {
  const later =
    (compress: (bytes: Buffer, options: object) => Buffer) =>
    (bytes: Buffer, options: object, done: Compressed): void => {
      const result = compress(bytes, options);
      const { scheduler, random } = current();
      scheduler.after(compressingMs * random.next(), "compresses", () => done(null, result));
    };
  Object.assign(zlib, {
    deflateRaw: later(zlib.deflateRawSync),
    zstdCompress: later(zlib.zstdCompressSync),
  });
  Object.defineProperty(zlib, "createGunzip", { value: () => new Gunzip() });
}

/** As grpc-js uses it, for one message. */
class Gunzip extends Transform {
  readonly #chunks: Buffer[] = [];

  override _transform(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }

  override _flush(done: (error: null, result: Buffer) => void): void {
    done(null, zlib.gunzipSync(Buffer.concat(this.#chunks)));
  }
}

/** nghttp2 puts the system's time into a ping without a payload, and Node.js the real date into responses. */
async function replaceHttp2(): Promise<void> {
  const { server, stream } = await anyHttp2();
  const session = Object.getPrototypeOf(Object.getPrototypeOf(server)) as Http2Session;
  const { ping } = session;
  const payload = Buffer.from("pingpong");
  session.ping = function (this: Http2Session, ...given: unknown[]): boolean {
    return Reflect.apply(ping, this, given.length > 1 ? given : [payload, ...given]);
  };
  const streams = Object.getPrototypeOf(stream) as ServerHttp2Stream;
  const { respond } = streams;
  streams.respond = function (this: ServerHttp2Stream, headers, options): void {
    const { sendDate = true } = { ...options } as { readonly sendDate?: boolean };
    const dated = sendDate ? { ...headers, date: new Date().toUTCString() } : headers;
    Reflect.apply(respond, this, [dated, options]);
  };
}

/** A session of a server and a stream of it, whose prototypes no module exports. */
async function anyHttp2(): Promise<{ server: Http2Session; stream: ServerHttp2Stream }> {
  const [one, other] = duplexPair();
  const server = performServerHandshake(one);
  const client = connect("http://any", { createConnection: () => other });
  const stream = await new Promise<ServerHttp2Stream>((resolve) => {
    server.once("stream", resolve);
    client.request().on("error", () => {});
  });
  server.destroy();
  client.destroy();
  return { server, stream };
}
