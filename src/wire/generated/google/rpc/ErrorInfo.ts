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
   * Whose reason it is: "watchfanout".
   */
  'domain'?: (string);
  /**
   * What the reason speaks of, by name.
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
   * Whose reason it is: "watchfanout".
   */
  'domain': (string);
  /**
   * What the reason speaks of, by name.
   */
  'metadata': ({[key: string]: string});
}
