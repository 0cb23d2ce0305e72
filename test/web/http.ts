import { type IncomingHttpHeaders, request as requestHttp1 } from "node:http";
import { connect } from "node:http2";
import { request as requestHttps } from "node:https";
import { onTestFinished } from "vitest";
import { ConnectDoor, type WebDoorOptions } from "../../src/web/connect-door.ts";
import { listWatchService, writeService } from "../../src/wire/services.ts";
import { type Served, serveThings } from "../server/served.ts";

export const paths = {
  get: listWatchService.Get.path,
  list: listWatchService.List.path,
  watch: listWatchService.Watch.path,
  subscribe: listWatchService.Subscribe.path,
  put: writeService.Put.path,
};

export const json = { "content-type": "application/json" };
export const jsonStream = { "content-type": "application/connect+json" };

/** A response that has arrived. */
export interface Answer {
  readonly code: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly trailers: IncomingHttpHeaders;
}

export type Headers = Readonly<Record<string, string>>;

/** What a client trusts, and its certificate. */
export interface ClientTls {
  readonly ca: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

export interface WebServed extends Served {
  /** Sends a request, with POST unless the headers have another `:method`. */
  request(path: string, headers: Headers, body?: string | Buffer): Promise<Answer>;
}

/** Serves `things`, and asks for it over a version of HTTP without a library of Connect. */
export async function serveWeb(
  version: "1.1" | "2",
  options: WebDoorOptions = {},
  server: Parameters<typeof serveThings>[0] = {},
): Promise<WebServed> {
  const served = await serveThings({
    ...server,
    server: { ...server?.server, webDoor: new ConnectDoor(options) },
  });
  const { port } = served.server;
  return {
    ...served,
    request: (path, headers, body = "") => ask(version, port, path, headers, body),
  };
}

/** Sends a request to localhost. Without `tls` in plain text. */
export function ask(
  version: "1.1" | "2",
  port: number,
  path: string,
  headers: Headers,
  body: string | Buffer,
  tls?: ClientTls,
): Promise<Answer> {
  return (version === "2" ? overHttp2 : overHttp1)(port, path, headers, body, tls);
}

function overHttp1(
  port: number,
  path: string,
  { ":method": method = "POST", ...headers }: Headers,
  body: string | Buffer,
  tls: ClientTls | undefined,
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const options = { ...{ port, path, method, headers }, host: "127.0.0.1" };
  const request =
    tls === undefined
      ? requestHttp1(options)
      : requestHttps({ ...options, ...tls, servername: "localhost" });
  request.on("error", reject).on("response", (response) => {
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk)).on("error", reject);
    response.on("end", () =>
      resolve({
        ...{ code: response.statusCode ?? 0, headers: response.headers },
        ...{ body: Buffer.concat(chunks), trailers: response.trailers },
      }),
    );
  });
  request.end(body);
  return promise;
}

function overHttp2(
  port: number,
  path: string,
  headers: Headers,
  body: string | Buffer,
  tls: ClientTls | undefined,
): Promise<Answer> {
  const session =
    tls === undefined
      ? connect(`http://127.0.0.1:${port}`)
      : connect(`https://127.0.0.1:${port}`, { ...tls, servername: "localhost" });
  onTestFinished(() => session.destroy());
  session.on("error", () => {});
  const stream = session.request({ ":method": "POST", ":path": path, ...headers });
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const chunks: Buffer[] = [];
  let received: IncomingHttpHeaders = {};
  let trailers: IncomingHttpHeaders = {};
  stream.on("error", reject).on("response", (each) => {
    received = each;
  });
  stream.on("trailers", (each) => {
    trailers = each;
  });
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("end", () => {
    const code = Number((received as Record<string, unknown>)[":status"]);
    resolve({ code, headers: received, body: Buffer.concat(chunks), trailers });
  });
  if (headers[":method"] !== "GET") stream.end(body);
  return promise;
}

/** The messages of a stream of Connect, and the JSON of its end. */
export function messagesIn(body: Buffer): { readonly flags: number; readonly content: Buffer }[] {
  const messages: { flags: number; content: Buffer }[] = [];
  for (let at = 0; at < body.length; ) {
    const size = body.readUInt32BE(at + 1);
    messages.push({ flags: body[at] ?? 0, content: body.subarray(at + 5, at + 5 + size) });
    at += 5 + size;
  }
  return messages;
}

/** A message with its prefix. */
export function enveloped(content: string | Uint8Array, flags: number = 0): Buffer {
  const bytes = Buffer.from(content as string);
  const prefix = Buffer.alloc(5);
  prefix[0] = flags;
  prefix.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([prefix, bytes]);
}
