import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { type Channel, codes, connectivity } from "../../base/grpc-codes.ts";
import { textOf } from "../../protobuf/text.ts";
import { type CallError, callError } from "../../wire/call-error.ts";
import type { Method } from "../../wire/methods.ts";
import { statusType } from "../../wire/rpc-status.ts";
import { browserGlobals } from "./browser-globals.ts";
import { Envelopes, enveloped, joined, tooLarge } from "./envelopes.ts";
import {
  type CallHeaders,
  endlessMs,
  type RequestStream,
  type Transport,
  type TransportSettings,
} from "./transport.ts";

/** The names of the status codes, as Connect writes them. */
const codesByName: ReadonlyMap<unknown, number> = new Map(
  Object.entries(codes).map(([name, code]) => [
    name === "CANCELLED" ? "canceled" : name.toLowerCase(),
    code,
  ]),
);

/** The codes of responses that are not of Connect, such as those of a proxy, by their HTTP status. */
const codesOfHttp: Readonly<Record<number, number>> = {
  400: codes.INTERNAL,
  401: codes.UNAUTHENTICATED,
  403: codes.PERMISSION_DENIED,
  404: codes.UNIMPLEMENTED,
  429: codes.UNAVAILABLE,
  502: codes.UNAVAILABLE,
  503: codes.UNAVAILABLE,
  504: codes.UNAVAILABLE,
  // A method with a stream of requests, over HTTP/1.1.
  505: codes.UNIMPLEMENTED,
};

/**
 * How long a stream may be silent, in milliseconds, before its connection counts as lost: browsers don't notice that a network
 * is gone. A watch has a bookmark each minute, if not more often.
 */
const silentMs = 150_000;

/** Maximum length of what an error has of the text of a proxy. */
const maxTextSize = 200;

/** Connect's error in JSON. */
interface ConnectError {
  readonly code?: unknown;
  readonly message?: unknown;
  readonly details?: readonly { readonly type: string; readonly value: string }[];
}

/**
 * Calls by the Connect protocol and `fetch`, with messages in protobuf: for browsers, and whatever else has `fetch`.
 *
 * A browser has one HTTP/2 connection for all calls to a server, or up to six of HTTP/1.1. It can't send requests while it
 * receives responses, so those of `bidiStream` are sent as one body.
 */
export class FetchTransport implements Transport {
  readonly channel: Channel = new BrowserChannel();
  readonly #url: string;
  readonly #maxBytes: number;
  readonly #clock: Clock;
  readonly #closing = new AbortController();

  /** `url` without a slash at its end. */
  constructor(url: string, { maxMessageBytes }: TransportSettings, clock: Clock) {
    this.#url = url;
    this.#clock = clock;
    this.#maxBytes = maxMessageBytes;
  }

  async unary<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    headers: CallHeaders,
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Response> {
    signal?.throwIfAborted();
    const wasOffline = isOffline();
    const hasDeadline = timeoutMs < endlessMs;
    const deadline = new AbortController();
    const timer = hasDeadline
      ? this.#clock.setTimeout(() => deadline.abort(), timeoutMs)
      : undefined;
    try {
      const response = await this.#post(
        method.path,
        {
          ...headers,
          "content-type": "application/proto",
          ...(hasDeadline ? { "connect-timeout-ms": String(Math.ceil(timeoutMs)) } : {}),
        },
        method.encode(request),
        AbortSignal.any([...(signal ? [signal] : []), deadline.signal]),
      );
      const bytes = await this.#bodyOf(response);
      if (response.ok && isOf(response, "application/proto")) return decoded(method, bytes);
      throw unaryError(response, bytes);
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      if (deadline.signal.aborted) throw callError(codes.DEADLINE_EXCEEDED, "Deadline exceeded");
      throw lostConnection(error, wasOffline);
    } finally {
      timer?.cancel();
    }
  }

  serverStream<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void> {
    return this.#stream(method, [request], headers, signal);
  }

  async *bidiStream<Request, Response>(
    method: Method<Request, Response>,
    onBegun: (requests: RequestStream<Request>) => void,
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void> {
    const requests = new RequestsAtOnce<Request>();
    onBegun(requests);
    yield* this.#stream(method, requests.finish(), headers, signal);
  }

  async *#stream<Request, Response>(
    method: Method<Request, Response>,
    requests: readonly Request[],
    headers: CallHeaders,
    signal: AbortSignal,
  ): AsyncGenerator<Response, void, void> {
    if (signal.aborted) return;
    const wasOffline = isOffline();
    const body = enveloped(requests.map(method.encode));
    const all = { ...headers, "content-type": "application/connect+proto" };
    // Leaving the loop ends the call.
    const leaving = new AbortController();
    const end = AbortSignal.any([signal, leaving.signal]);
    const unlessSilent = <T>(something: Promise<T>): Promise<T> => {
      const silence = this.#clock.setTimeout(() => leaving.abort(), silentMs);
      return something.finally(() => silence.cancel());
    };
    try {
      const response = await unlessSilent(this.#post(method.path, all, body, end));
      if (!response.ok || !isOf(response, "application/connect+proto") || response.body === null) {
        throw unaryError(response, await unlessSilent(this.#bodyOf(response)));
      }
      const envelopes = new Envelopes(response.body.getReader(), this.#maxBytes);
      for (;;) {
        const envelope = await unlessSilent(envelopes.next());
        if (envelope === undefined) throw callError(codes.UNAVAILABLE, "The stream was cut.");
        if (!envelope.isEnd) yield decoded(method, envelope.content);
        else {
          const { error } = parsed(envelope.content) as { error?: ConnectError };
          if (error !== undefined) throw errorOfConnect(error, codes.UNKNOWN);
          return;
        }
      }
    } catch (error) {
      if (!signal.aborted) throw lostConnection(error, wasOffline);
    } finally {
      leaving.abort();
    }
  }

  close(): void {
    this.#closing.abort();
  }

  #post(
    path: string,
    headers: CallHeaders,
    body: Uint8Array,
    signal: AbortSignal,
  ): Promise<Response> {
    return fetch(this.#url + path, {
      method: "POST",
      headers: { ...headers, "connect-protocol-version": "1" },
      body: body as Uint8Array<ArrayBuffer>,
      signal: AbortSignal.any([signal, this.#closing.signal]),
      cache: "no-store",
      // What another site responds is not the response of the service.
      redirect: "error",
    });
  }

  /** Rejects with a CallError for a body above the maximum. */
  async #bodyOf({ body }: Response): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    let size = 0;
    for (const reader = body?.getReader(); reader !== undefined; ) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.byteLength;
      if (size > this.#maxBytes) {
        void reader.cancel();
        throw tooLarge(size, this.#maxBytes);
      }
      chunks.push(value);
    }
    return joined(chunks);
  }
}

const events = ["online", "offline"];

/** The connectivity as a browser reports it: it connects for each call that needs a connection. */
class BrowserChannel implements Channel {
  getConnectivityState(): number {
    return isOffline() ? connectivity.TRANSIENT_FAILURE : connectivity.READY;
  }

  watchConnectivityState(
    state: number,
    deadline: Date | number,
    callback: (late?: Error) => void,
  ): void {
    const ms = Number(deadline) - Date.now();
    const settle = (late?: Error): void => {
      clearTimeout(timer);
      for (const event of events) browserGlobals.removeEventListener?.(event, changed);
      callback(late);
    };
    const changed = (): void => {
      if (this.getConnectivityState() !== state) settle();
    };
    const timer = ms < endlessMs ? setTimeout(() => settle(new Error("Too late.")), ms) : undefined;
    // Other runtimes have no such events.
    for (const event of events) browserGlobals.addEventListener?.(event, changed);
    changed();
  }
}

function isOffline(): boolean {
  return browserGlobals.navigator?.onLine === false;
}

/** The requests of a call that are there when it begins. */
class RequestsAtOnce<Request> implements RequestStream<Request> {
  readonly #requests: Request[] = [];
  /** Further requests wait for good. */
  writableNeedDrain = false;

  write(request: Request): void {
    if (!this.writableNeedDrain) this.#requests.push(request);
  }

  on(): void {}

  finish(): readonly Request[] {
    this.writableNeedDrain = true;
    return this.#requests;
  }
}

function decoded<Response>({ path, decode }: Method<never, Response>, bytes: Uint8Array): Response {
  try {
    return decode(bytes);
  } catch (error) {
    throw callError(codes.INTERNAL, `The response of ${path} ${messageOf(error)}`);
  }
}

function isOf(response: Response, type: string): boolean {
  return response.headers.get("content-type")?.split(";", 1)[0]?.trim() === type;
}

/** The error of a response that is not the result of its call. */
function unaryError(response: Response, body: Uint8Array): CallError {
  const code = codesOfHttp[response.status] ?? codes.UNKNOWN;
  if (isOf(response, "application/json")) {
    return errorOfConnect(parsed(body) as ConnectError, code);
  }
  const type = response.headers.get("content-type") ?? "no content type";
  const text = isOf(response, "text/plain")
    ? (textOf(body) ?? "").trim().slice(0, maxTextSize)
    : "";
  return callError(
    code,
    `HTTP status ${response.status}, ${type}, which is no answer by Connect${text && `: ${text}`}`,
  );
}

function errorOfConnect({ code, message, details = [] }: ConnectError, other: number): CallError {
  const text = typeof message === "string" ? message : "";
  const known = codesByName.get(code) ?? other;
  const encoded = statusType.encode({
    code: known,
    message: text,
    details: details.map(({ type, value }) => ({
      type_url: `type.googleapis.com/${type}`,
      value: Uint8Array.from(atob(value), (character) => character.charCodeAt(0)) as Buffer,
    })),
  });
  return callError(known, text, encoded);
}

/** The JSON of a body; an empty object if it is something else. */
function parsed(body: Uint8Array): object {
  try {
    const value: unknown = JSON.parse(textOf(body) ?? "");
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/**
 * The error of a call whose connection has failed: a browser does not say why. Only a call that has begun without a network was
 * not sent; `wasOffline` says that.
 */
function lostConnection(error: unknown, wasOffline: boolean): unknown {
  // Others are a CallError, and a bug.
  if (!(error instanceof TypeError || error instanceof DOMException)) return error;
  const isUnsent = wasOffline && isOffline();
  const why = isUnsent ? "No connection established: the browser is offline" : String(error);
  return callError(codes.UNAVAILABLE, why);
}
