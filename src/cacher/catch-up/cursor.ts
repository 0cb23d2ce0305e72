import type { EventNode } from "../state/event-node.ts";
import { CoalescedCursor } from "./coalesced-cursor.ts";
import { EventWindowCursor } from "./event-window-cursor.ts";
import type { CursorOrigin, SourceContext, SourceReader, WatchSource } from "./watch-source.ts";

/** The source of everything that comes after `node`, as the watcher's delivery mode asks for it. */
export function cursorAfter(
  node: EventNode,
  watcher: SourceReader,
  context: SourceContext,
  origin: CursorOrigin,
): WatchSource {
  switch (watcher.options.delivery) {
    case "EVERY_EVENT":
      return new EventWindowCursor(watcher, context, node, origin);
    case "LATEST_STATE":
      return new CoalescedCursor(watcher, context, node, origin);
  }
}
