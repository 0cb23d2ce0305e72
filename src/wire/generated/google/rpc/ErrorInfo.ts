// Original file: proto/google/rpc/error_details.proto


/**
 * Why a call failed.
 */
export interface ErrorInfo {
  /**
   * The reason, in capitals. The same word always means the same.
   */
  'reason'?: (string);
  /**
   * The domain of the reason: "watchfanout".
   */
  'domain'?: (string);
  /**
   * Values that belong to the reason, by name.
   */
  'metadata'?: ({[key: string]: string});
}

/**
 * Why a call failed.
 */
export interface ErrorInfo__Output {
  /**
   * The reason, in capitals. The same word always means the same.
   */
  'reason': (string);
  /**
   * The domain of the reason: "watchfanout".
   */
  'domain': (string);
  /**
   * Values that belong to the reason, by name.
   */
  'metadata': ({[key: string]: string});
}
