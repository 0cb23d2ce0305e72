import { messageOf } from "../../base/errors.ts";
import type { ListenAddress } from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";

/** Why the service could not start, in a sentence for the user. */
export class StartError extends Error {
  override readonly name = "StartError";
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: "the address is in use",
  EADDRNOTAVAIL: "this machine does not have that address",
  EACCES: "permission denied",
  ENOTFOUND: "unknown host name",
  "Name resolution failed": "unknown host name",
};

/** Turns a failure to listen into a StartError with a sentence that names the option. */
export async function listening<T>(
  option: "listen" | "admin",
  address: ListenAddress,
  start: () => Promise<T>,
): Promise<T> {
  try {
    return await start();
  } catch (error) {
    // Something else than the address, which names its own option.
    if (error instanceof StartError) throw error;
    const other =
      "path" in address
        ? `Choose another with --${option} unix:PATH.`
        : `Choose another with --${option} HOST:PORT; port 0 selects a free port.`;
    throw new StartError(
      `--${option}: can't listen on ${formatAddress(address)}: ${reasonOf(error)}. ${other}`,
      { cause: error },
    );
  }
}

/** grpc-js, and a name with several addresses, have the error code in the message only. */
function reasonOf(error: unknown): string {
  const message = messageOf(error);
  const code = /\bE[A-Z]{4,}\b|Name resolution failed/.exec(message)?.[0] ?? "";
  return reasons[code] ?? message;
}
