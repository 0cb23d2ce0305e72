import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

/** Maximum number of characters of the host's name in an id: error texts have the ids of several relays. */
const maxHostLength = 24;

/**
 * Returns an id of this process, such as `relay-7d4f-x2x9q.3f9a1c`: the host's name, which is the pod's in Kubernetes, and
 * random digits, since a host may have several.
 */
export function newInstanceId(): string {
  const host = hostname().replaceAll(/[^\w.-]/g, "");
  return `${host.slice(-maxHostLength)}.${randomBytes(3).toString("hex")}`;
}
