import type { IncomingMessage } from "node:http";
import type { AdminResponse } from "./admin-response.ts";

/** The level of the log, which the admin port can change. */
export interface LogLevelControl {
  readonly current: string;
  /** Every level. */
  readonly levels: readonly string[];
  /** Returns false if there is no such level. */
  set(level: string): boolean;
}

/** Maximum size of a body that is looked at, in bytes: more than the longest level. The rest is dropped. */
const maxBodyBytes = 64;

/** Reads a request to its end, and returns the beginning of its body. Rejects if its client disconnects. */
export async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = Buffer.alloc(0);
  for await (const chunk of request as AsyncIterable<Buffer>) {
    if (body.length < maxBodyBytes) {
      body = Buffer.concat([body, chunk.subarray(0, maxBodyBytes - body.length)]);
    }
  }
  return body.toString("utf8");
}

/** GET returns the level; PUT sets it to the text of the body. */
export function logLevelPage(
  method: string | undefined,
  body: string,
  level: LogLevelControl,
): AdminResponse {
  if (method === "PUT" && !level.set(body.trim())) {
    const names = level.levels.join(", ");
    return { status: 400, body: `The body has to be one of the levels ${names}.\n` };
  }
  if (method === "PUT" || method === "GET" || method === "HEAD") {
    return { status: 200, body: `${level.current}\n` };
  }
  const headers = { allow: "GET, HEAD, PUT" };
  return { status: 405, body: "/log-level supports GET, HEAD and PUT only.\n", headers };
}
