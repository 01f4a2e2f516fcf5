/**
 * A session can end while somebody is in the middle of a form. Requests that find out wait here for
 * the person to sign in again, and are then sent once more, so that nothing typed is lost.
 */
import { useSyncExternalStore } from "react";

type Question = { answer: Promise<boolean>; settle: (signedIn: boolean) => void };

let question: Question | null = null;
const listeners = new Set<() => void>();

const announce = () => listeners.forEach((listener) => listener());

function newQuestion(): Question {
  let settle!: Question["settle"];
  const answer = new Promise<boolean>((resolve) => {
    settle = resolve;
  });
  return { answer, settle };
}

/** Asks once for any number of waiting requests. Resolves to whether the same person is signed in again. */
export function askToSignInAgain(): Promise<boolean> {
  if (question === null) {
    question = newQuestion();
    announce();
  }
  return question.answer;
}

export function answerSignInAgain(signedIn: boolean) {
  question?.settle(signedIn);
  question = null;
  announce();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useSignInRequired = () => useSyncExternalStore(subscribe, () => question !== null);
