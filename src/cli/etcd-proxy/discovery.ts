import type { SrvRecord } from "node:dns";
import { Resolver } from "node:dns/promises";
import { messageOf } from "../../base/errors.ts";

/** Where the SRV records of members are. */
export interface Discovery {
  readonly domain: string;
  /** The end of the service's name: `etcd-client-NAME`. Undefined: the service is `etcd-client`. */
  readonly serviceName: string | undefined;
  /** Whether members without TLS are used, where none has TLS. */
  readonly isInsecure: boolean;
}

/** How long one name server may take, in milliseconds, and how often it is asked. */
const timeout = 2_000;
const tries = 2;

/**
 * Looks up the members of a cluster, as etcd does: `_etcd-client-ssl._tcp.DOMAIN` has those with TLS, `_etcd-client._tcp.DOMAIN`
 * the others. Resolves to their URLs, by priority, at least one. Rejects with an Error with a sentence.
 */
export async function discoverMembers(
  { domain, serviceName, isInsecure }: Discovery,
  resolver: Pick<Resolver, "resolveSrv"> = new Resolver({ timeout, tries }),
): Promise<readonly string[]> {
  const end = serviceName === undefined ? "" : `-${serviceName}`;
  const failures: string[] = [];
  const urlsAt = async (service: string, scheme: string): Promise<readonly string[]> => {
    try {
      const found = await resolver.resolveSrv(`_${service}${end}._tcp.${domain}`);
      return found.toSorted(byPriority).map(({ name, port }) => `${scheme}://${name}:${port}`);
    } catch (error) {
      failures.push(messageOf(error));
      return [];
    }
  };
  const [secure, plain] = await Promise.all([
    urlsAt("etcd-client-ssl", "https"),
    urlsAt("etcd-client", "http"),
  ]);
  if (secure.length > 0) return secure;
  if (plain.length === 0) {
    throw new Error(`${JSON.stringify(domain)} has no members: ${failures.join("; ")}.`);
  }
  if (isInsecure) return plain;
  throw new Error(
    `${JSON.stringify(domain)} has only members without TLS. Use --insecure-discovery if that is right.`,
  );
}

/** Those of one priority share the load by their weights at etcd; here the heaviest is first. */
function byPriority(a: SrvRecord, b: SrvRecord): number {
  return a.priority - b.priority || b.weight - a.weight;
}
