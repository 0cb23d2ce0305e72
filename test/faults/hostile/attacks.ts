import type { Attacks } from "./attack.ts";
import { bareSockets } from "./bare-sockets.ts";
import { compressedRequests } from "./compressed-requests.ts";
import { costlyReads } from "./costly-reads.ts";
import { droppedConnections } from "./dropped-connections.ts";
import { etcdWatches } from "./etcd-watches.ts";
import { floods } from "./floods.ts";
import { keptPast } from "./kept-past.ts";
import { largeFilters } from "./large-filters.ts";
import { pages } from "./pages.ts";
import { shutWindows } from "./shut-windows.ts";
import { subscribeStreams } from "./subscribe-streams.ts";
import { unfinishedRequests } from "./unfinished-requests.ts";
import { writes } from "./writes.ts";

/** Everything that the hostile client does, by name. */
export const attacks: Attacks = {
  ...unfinishedRequests,
  ...droppedConnections,
  ...compressedRequests,
  ...shutWindows,
  ...largeFilters,
  ...costlyReads,
  ...pages,
  ...floods,
  ...etcdWatches,
  ...subscribeStreams,
  ...bareSockets,
  // These write so much that what the others read is no longer kept.
  ...keptPast,
  ...writes,
};
