import { invalidRequest, type WatchFanoutError } from "../base/errors.ts";
import { ownText } from "../base/text-memory.ts";

/**
 * Metadata of a request that relays have passed on: their instance ids, separated by commas, the one nearest to the client
 * first.
 */
export const viaKey = "watch-fanout-via";

/** Maximum number of relays between a client and the server that has the store. */
export const maxRelays = 8;

/** Maximum length of the metadata, in characters: more than the ids of all relays need. */
const maxViaLength = 1_024;

/** The part of the metadata that a server keeps until it has been checked: one character more than is allowed. */
export function keptVia(via: string | undefined): string | undefined {
  return via === undefined || via === "" ? undefined : ownText(via.slice(0, maxViaLength + 1));
}

/** The instance ids in the metadata; none without it. */
export function relaysIn(via: string | undefined): readonly string[] {
  return via === undefined ? [] : via.split(",").map((id) => id.trim());
}

/**
 * Why a request must not be served that has passed these relays: this server, `instanceId`, is one of them, or they are too
 * many. Undefined: it may be served.
 */
export function refusalOfPath(
  via: string,
  instanceId: string | undefined,
): WatchFanoutError | undefined {
  const relays = relaysIn(via);
  if (instanceId !== undefined && relays.includes(instanceId)) {
    return invalidRequest(
      viaKey,
      `The relays follow each other in a loop: ${pathText([...relays, instanceId])}. Change --upstream of one of them, so ` +
        "that each follows a server that is nearer to the store.",
    );
  }
  if (relays.length <= maxRelays && via.length <= maxViaLength) return undefined;
  return invalidRequest(
    viaKey,
    `The request has passed ${relays.length} relays, and the maximum is ${maxRelays}: ${pathText(relays)}. Let the relay ` +
      "follow a server that is nearer to the store.",
  );
}

/** Whether an error is one of `refusalOfPath`, also of another server. */
export function isPathRefusal(error: WatchFanoutError): boolean {
  return error.reason === "INVALID_REQUEST" && error.field === viaKey;
}

/** The last two more than the maximum are enough to recognise a loop, and an error text has a maximum size. */
function pathText(relays: readonly string[]): string {
  return relays.slice(-(maxRelays + 2)).join(" -> ");
}
