/** A refused request, or one without an answer. */
export class AgentlipError extends Error {
  /**
   * @param code one of the appliance's error codes (docs/reference/errors.md), or a code of this
   *   client: UNREACHABLE, TIMED_OUT, EPOCH_CHANGED
   * @param status the HTTP status; 0 without an answer
   * @param hint what helps, often a command
   * @param retryAfter seconds after which the appliance would look at the request again
   */
  constructor(
    message: string,
    readonly code: string,
    readonly status = 0,
    readonly hint = "",
    readonly details: Record<string, unknown> = {},
    readonly requestId = "",
    readonly retryAfter?: number,
  ) {
    super(message);
    this.name = "AgentlipError";
  }
}

/** Read the error from a response that is not 2xx; a proxy's page becomes one as well. */
export async function readError(response: Response): Promise<AgentlipError> {
  const text = (await response.text()).slice(0, 65_536);
  let body: Record<string, unknown> = {};
  try {
    body = Object(JSON.parse(text));
  } catch {
    body = { error: `HTTP ${response.status} from a server that is no appliance` };
  }
  const after = Number(response.headers.get("retry-after") ?? NaN);
  return new AgentlipError(
    String(body.error ?? `HTTP ${response.status}`),
    String(body.code ?? "HTTP_ERROR"),
    response.status,
    String(body.hint ?? ""),
    Object(body.details ?? {}),
    String(body.request_id ?? ""),
    Number.isFinite(after) ? after : undefined,
  );
}
