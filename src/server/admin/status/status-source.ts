import type { Overview, StreamsReport } from "./status.ts";
import type { StreamQuery } from "./stream-query.ts";

/** Where the status comes from. Each call computes it again. */
export interface StatusSource {
  overview(): Promise<Overview>;
  streams(query: StreamQuery): Promise<StreamsReport>;
}
