/**
 * Clients of grpc-js that read an initial state, in their own process. Started by compress.ts, which sends it messages by
 * IPC.
 */
import { Client, credentials } from "@grpc/grpc-js";
import { listWatchService } from "../src/wire/services.ts";
import { answerParent } from "./child.ts";

/** Clients to open one after another. The answer is their CPU, in milliseconds for each. */
export interface CompressQuestion {
  readonly url: string;
  readonly resource: string;
  readonly clients: number;
}

const { path, requestSerialize, responseDeserialize } = listWatchService.Watch;

answerParent<CompressQuestion>(async ({ url, resource, clients }) => {
  const client = new Client(new URL(url).host, credentials.createInsecure());
  const before = process.cpuUsage();
  for (let i = 0; i < clients; i++) await readState(client, resource);
  const { user, system } = process.cpuUsage(before);
  client.close();
  return (user + system) / 1_000 / clients;
});

function readState(client: Client, resource: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = { resource, send_initial_events: true };
    const call = client.makeServerStreamRequest(
      ...[path, requestSerialize, responseDeserialize, request],
    );
    call.on("error", reject);
    call.on("data", ({ initial_events_end }) => {
      if (!initial_events_end) return;
      call.removeListener("error", reject).on("error", () => {});
      call.cancel();
      resolve();
    });
  });
}
