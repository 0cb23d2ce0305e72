import { readFile } from "node:fs/promises";
import { get as httpGet, type IncomingMessage } from "node:http";
import { get as httpsGet, type RequestOptions } from "node:https";
import { connectionCause, type TlsSettings } from "../../base/connection-cause.ts";
import { invalidRequest, messageOf, WatchFanoutError } from "../../base/errors.ts";
import type { Status } from "../../server/admin/status/status.ts";
import { readAll } from "../output/command-io.ts";

/** Maximum size of a response, in bytes: 1,000 resources and 500 streams with long texts are below it. */
const maxBytes = 8 * 1024 * 1024;

/** Where the status is, and how to get it. */
interface StatusSettings {
  /** Of the admin port, such as http://127.0.0.1:8080. */
  readonly url: URL;
  readonly tlsCa?: string | undefined;
  readonly bearerTokenFile?: string | undefined;
  readonly timeoutMs: number;
  /** Ends the request when the user quits. */
  readonly quit?: AbortSignal | undefined;
}

const tlsSettings: TlsSettings = {
  on: "write https:// in --url, and set --tls-ca for a private authority",
  off: "write http:// in --url",
  ca: "--tls-ca",
  cert: undefined,
  serverName: undefined,
};

/** Requests the status. Rejects with a WatchFanoutError whose message says what to do. */
export async function readStatus(
  settings: StatusSettings,
  parameters: URLSearchParams,
): Promise<Status> {
  const { url, tlsCa, bearerTokenFile } = settings;
  const timeout = AbortSignal.timeout(settings.timeoutMs);
  const { quit } = settings;
  const signal = quit === undefined ? timeout : AbortSignal.any([timeout, quit]);
  const target = new URL(`/status.json?${parameters}`, url);
  const token =
    process.env["WATCH_FANOUT_BEARER_TOKEN"] || (await contentOf(bearerTokenFile, signal));
  const options = {
    headers: token === undefined ? {} : { authorization: `Bearer ${token.toString().trim()}` },
    ca: await contentOf(tlsCa, signal),
    signal,
  };
  const { status, body } = await requested(target, options).catch((error: unknown) => {
    const isTls = url.protocol === "https:";
    const { text, advice } = connectionCause(messageOf(error), tlsSettings, isTls);
    throw new WatchFanoutError(
      "UPSTREAM_UNAVAILABLE",
      `${url.origin} does not respond: ${text}. ${advice ?? "--url names the admin port of the service."}`,
      { cause: error },
    );
  });
  if (status === 200) return parsed(body, url);
  if (status === 401) {
    const advice = "Name the file with the token by --bearer-token-file.";
    throw new WatchFanoutError("UNAUTHENTICATED", `${url.origin} needs a token. ${advice}`);
  }
  if (status === 400) throw new WatchFanoutError("INVALID_REQUEST", body.trim());
  if (status === 503) throw new WatchFanoutError("OVERLOADED", body.trim());
  throw notStatus(url, `it responds with HTTP status ${status}`);
}

async function contentOf(
  path: string | undefined,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  if (path === undefined) return undefined;
  try {
    return await readFile(path, { signal });
  } catch (error) {
    throw invalidRequest("file", `The file ${path} can't be read: ${messageOf(error)}`);
  }
}

async function requested(
  target: URL,
  options: RequestOptions,
): Promise<{ readonly status: number; readonly body: string }> {
  const get: typeof httpsGet = target.protocol === "https:" ? httpsGet : httpGet;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(target, options, resolve).on("error", reject);
  });
  const body = await readAll(response, maxBytes);
  if (body === undefined) throw new Error("the response is too large");
  return { status: response.statusCode ?? 0, body: body.toString() };
}

function parsed(body: string, url: URL): Status {
  try {
    const status: Status = JSON.parse(body);
    if (Array.isArray(status.streams.items) && Array.isArray(status.resources)) return status;
  } catch {
    // The error below has what the user can do.
  }
  throw notStatus(url, "its response is not a status");
}

function notStatus(url: URL, why: string): WatchFanoutError {
  return new WatchFanoutError(
    "INVALID_REQUEST",
    `${url.origin} is not the admin port of a watch-fanout of this version: ${why}.`,
  );
}
