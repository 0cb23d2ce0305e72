import type { IncomingMessage } from "node:http";
import { WatchFanoutError } from "../../base/errors.ts";
import type { Status } from "../../server/admin/status/status.ts";
import { type AdminPortOptions, requestAdminPort } from "../admin/admin-port.ts";
import { readAll } from "../output/command-io.ts";

/** Maximum size of a response, in bytes: 1,000 resources and 500 streams with long texts are below it. */
const maxBytes = 8 * 1024 * 1024;

/** Where the status is, and how to get it. */
interface StatusSettings extends AdminPortOptions {
  readonly timeoutMs: number;
  /** Ends the request when the user quits. */
  readonly quit?: AbortSignal | undefined;
}

/** Requests the status. Rejects with a WatchFanoutError whose message says what to do. */
export async function readStatus(
  settings: StatusSettings,
  parameters: URLSearchParams,
): Promise<Status> {
  const { url, quit } = settings;
  const timeout = AbortSignal.timeout(settings.timeoutMs);
  const signal = quit === undefined ? timeout : AbortSignal.any([timeout, quit]);
  const page = `/status.json?${parameters}`;
  const { status, body } = await requestAdminPort(settings, page, signal, bodyOf);
  if (status === 200) return parsed(body, url);
  if (status === 400) throw new WatchFanoutError("INVALID_REQUEST", body.trim());
  if (status === 503) throw new WatchFanoutError("OVERLOADED", body.trim());
  throw notStatus(url, `it responds with HTTP status ${status}`);
}

async function bodyOf(
  response: IncomingMessage,
): Promise<{ readonly status: number; readonly body: string }> {
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
