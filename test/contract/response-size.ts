import type { WatchResponse__Output } from "../../src/wire/generated/watchfanout/v1/WatchResponse.ts";
import { listWatchService } from "../../src/wire/services.ts";

/** How many bytes the message takes on the wire, by protobufjs and not by our own encoder. */
export function watchResponseSize(response: WatchResponse__Output): number {
  return listWatchService.Watch.responseSerialize(response).byteLength;
}
