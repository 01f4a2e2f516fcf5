/** The token that proves to the server that an unsafe request was made by this page. It changes with the session. */
let current: string | null = null;

export const csrfToken = () => current;

export function setCsrfToken(token: string | null) {
  current = token;
}
