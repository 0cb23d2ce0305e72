import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { createConnection, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** A request of HTTP/1.1 as its text. */
export function requestOf(path: string, body: string, headers: readonly string[] = []): string {
  const lines = [`POST ${path} HTTP/1.1`, "Host: a", `Content-Length: ${Buffer.byteLength(body)}`];
  return [...lines, ...headers, "", body].join("\r\n");
}

/** A connection with what was received on it. */
export interface Connection {
  readonly socket: Socket;
  readonly received: () => string;
  readonly closed: Promise<void>;
  /** Resolves with what was received, once that matches. */
  until(pattern: RegExp): Promise<string>;
}

/** Connects to the address `127.0.0.1:PORT` and sends a text. */
export function connectTo(address: string, text: string): Connection {
  const [host = "", port] = address.split(":");
  const socket = createConnection({ port: Number(port), host });
  onTestFinished(() => void socket.destroy());
  let received = "";
  let onReceived = (): void => {};
  socket.on("error", () => {}).setEncoding("latin1");
  socket.on("data", (chunk: string) => {
    received += chunk;
    onReceived();
  });
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write(text);
  const until = (pattern: RegExp): Promise<string> => {
    const { promise, resolve } = Promise.withResolvers<string>();
    onReceived = () => {
      if (pattern.test(received)) resolve(received);
    };
    onReceived();
    return promise;
  };
  return { socket, received: () => received, closed, until };
}

/** The messages of a watch, one at a time. */
export interface Messages {
  readonly status: number;
  next(): Promise<Message>;
  cancel(): Promise<void>;
}

/** What a line of a stream has. */
export interface Message {
  readonly result?: {
    readonly header: { readonly revision: string };
    readonly created?: boolean;
    readonly canceled?: boolean;
    readonly watch_id?: string;
    readonly events?: readonly {
      readonly type?: string;
      readonly kv: { readonly key: string; readonly value?: string };
      readonly prev_kv?: { readonly value: string };
    }[];
  };
  readonly error?: { readonly message: string };
}

/** Opens a stream by HTTP/1.1. */
export async function watchByHttp1(url: string, body: string): Promise<Messages> {
  const aborted = new AbortController();
  onTestFinished(() => aborted.abort());
  const response = await fetch(`${url}/v3/watch`, { method: "POST", body, signal: aborted.signal });
  const chunks = (response.body as ReadableStream<Uint8Array>)[Symbol.asyncIterator]();
  return messagesOf(response.status, chunks, async () => aborted.abort());
}

/** Opens a stream by HTTP/2. */
export async function watchByHttp2(url: string, body: string): Promise<Messages> {
  const session = sessionOf(url);
  const stream = session.request({ ":method": "POST", ":path": "/v3/watch" });
  stream.on("error", () => {});
  const status = new Promise<number>((resolve) =>
    stream.on("response", ({ ":status": code }) => resolve(code ?? 0)),
  );
  stream.end(body);
  const chunks = stream[Symbol.asyncIterator]();
  return messagesOf(await status, chunks, async () => stream.close());
}

export function sessionOf(url: string): ClientHttp2Session {
  const session = connectHttp2(url);
  session.on("error", () => {});
  onTestFinished(() => session.destroy());
  return session;
}

function messagesOf(
  status: number,
  chunks: AsyncIterator<Uint8Array>,
  cancel: () => Promise<void>,
): Messages {
  let text = "";
  const next = async (): Promise<Message> => {
    for (;;) {
      const end = text.indexOf("\n");
      if (end >= 0) {
        const line = text.slice(0, end);
        text = text.slice(end + 1);
        return JSON.parse(line) as Message;
      }
      const { value, done } = await chunks.next();
      if (done === true) throw new Error("The stream has ended.");
      text += Buffer.from(value).toString();
    }
  };
  return { status, next, cancel };
}
