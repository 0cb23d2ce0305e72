import { Metadata } from "@grpc/grpc-js";
import type { Status } from "../../src/server/admin/status/status.ts";
import type { WatchRequest } from "../../src/wire/generated/watchfanout/v1/WatchRequest.ts";
import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import type { Tier } from "../relay/tiers.ts";
import { TestClient, type Watching } from "../server/test-client.ts";

/** Opens watches on one connection, and resolves when each has its first response. */
export async function openWatches(
  client: TestClient,
  requests: readonly WatchRequest[],
): Promise<Watching<WatchResponse__Output>[]> {
  const watches = requests.map((request) => client.watch({ resource: "default", ...request }));
  for (const watch of watches) {
    watch.ended.catch(() => {});
    await watch.next();
  }
  return watches;
}

/** A client that sends a token. */
export function clientWith(tier: Tier, token: string): TestClient {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${token}`);
  return new TestClient(tier.port, undefined, metadata);
}

export function adminUrl(tier: Tier, path: string): string {
  return `http://127.0.0.1:${tier.service.admin.port}${path}`;
}

/** The status by these parameters. Throws if there is an error instead. */
export async function statusOf(
  tier: Tier,
  parameters: Readonly<Record<string, string>> = {},
): Promise<Status> {
  const response = await fetch(adminUrl(tier, `/status.json?${new URLSearchParams(parameters)}`));
  if (!response.ok) throw new Error(await response.text());
  return response.json() as Promise<Status>;
}
