import type { GetRequest } from "../../wire/generated/watchfanout/v1/GetRequest.ts";
import type { ViewOptions } from "./options.ts";

/** What of each object is sent, as fields of a request. */
export function wireView({
  view,
  readMask,
}: ViewOptions): Required<Pick<GetRequest, "read_mask" | "view">> {
  return {
    view: `VIEW_${view ?? "UNSPECIFIED"}`,
    read_mask: readMask === undefined ? null : { paths: [...readMask] },
  };
}
