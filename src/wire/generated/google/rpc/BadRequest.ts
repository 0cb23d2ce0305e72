// Original file: proto/google/rpc/error_details.proto


/**
 * One problem.
 */
export interface _google_rpc_BadRequest_FieldViolation {
  /**
   * The field, as a path of names with dots between them. Empty: the request as a whole.
   */
  'field'?: (string);
  /**
   * What is wrong with it.
   */
  'description'?: (string);
}

/**
 * One problem.
 */
export interface _google_rpc_BadRequest_FieldViolation__Output {
  /**
   * The field, as a path of names with dots between them. Empty: the request as a whole.
   */
  'field': (string);
  /**
   * What is wrong with it.
   */
  'description': (string);
}

/**
 * What is wrong with the request.
 */
export interface BadRequest {
  /**
   * All problems.
   */
  'field_violations'?: (_google_rpc_BadRequest_FieldViolation)[];
}

/**
 * What is wrong with the request.
 */
export interface BadRequest__Output {
  /**
   * All problems.
   */
  'field_violations': (_google_rpc_BadRequest_FieldViolation__Output)[];
}
