import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import * as http from "node:http";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Downloads `url`, through the proxy of the environment (`http_proxy`, `https_proxy`) or, without one, the proxy of
 * apt's configuration.
 *
 * @param maxBytes maximum size of the response, in bytes
 * @throws Error that names the URL, at most `deadlineMs` after the call
 */
export async function download(
  url: string,
  maxBytes: number,
  deadlineMs: number = 120_000,
): Promise<Buffer> {
  await useProxy();
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(deadlineMs) });
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw new Error(`more than ${maxBytes} bytes came`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  } catch (error) {
    throw new Error(`${url}: ${reasonOf(error)}`, { cause: error });
  }
}

/** @throws Error if the content does not have the expected checksum */
export function verifySha256(name: string, content: Uint8Array, expected: string): void {
  const actual = createHash("sha256").update(content).digest("hex");
  if (actual !== expected) {
    throw new Error(`${name} has SHA-256 ${actual} where ${expected} was expected`);
  }
}

/** The message of an error and of its cause, which fetch hides. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? "" : ` (${reasonOf(error.cause)})`;
  return error.message.includes(cause.slice(2, -1)) ? error.message : error.message + cause;
}

let proxyUsed: Promise<void> | undefined;

function useProxy(): Promise<void> {
  proxyUsed ??= setProxy();
  return proxyUsed;
}

async function setProxy(): Promise<void> {
  const env = process.env;
  const ofEnvironment = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"];
  if (ofEnvironment.some((name) => env[name])) {
    http.setGlobalProxyFromEnv();
    return;
  }
  const ofApt = await aptProxy();
  if (ofApt !== undefined) http.setGlobalProxyFromEnv({ http_proxy: ofApt, https_proxy: ofApt });
}

async function aptProxy(): Promise<string | undefined> {
  try {
    const { stdout } = await run("apt-config", ["shell", "PROXY", "Acquire::http::Proxy"], {
      timeout: 10_000,
    });
    return /^PROXY='(https?:.*)'$/m.exec(stdout)?.[1];
  } catch {
    return undefined; // no apt here
  }
}
