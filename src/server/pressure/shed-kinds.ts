import { listWatchService, writeService } from "../../wire/services.ts";
import type { RefusedKind } from "./memory-pressure.ts";

/** What a call counts as when memory is short, by the path of its method. */
const kinds: ReadonlyMap<string, RefusedKind> = new Map([
  [listWatchService.Watch.path, "stream"],
  [listWatchService.List.path, "list"],
  [listWatchService.Get.path, "call"],
  [listWatchService.Resources.path, "call"],
  [writeService.Put.path, "call"],
  [writeService.Delete.path, "call"],
]);

/**
 * What the calls of a method are refused as; undefined: they are not refused. Health has to respond, since an
 * orchestrator would end a process whose health does not.
 */
export function refusedKindOf(path: string): RefusedKind | undefined {
  return kinds.get(path);
}
