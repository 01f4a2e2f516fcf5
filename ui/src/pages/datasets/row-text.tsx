import { useState } from "react";
import type { Piece } from "@/api/types";
import { countText } from "@/text/numbers";
import { beginning, visibleSpace } from "./visible-space";

const AT_FIRST = 1_200;
const AND_THEN = 20_000;

/** A text in pieces; what is trained stands out. Wrapped: what scrolls sideways is out of reach for a keyboard. */
export function RowText({ pieces, showSpace = false }: { pieces: readonly Piece[]; showSpace?: boolean }) {
  const [most, setMost] = useState(AT_FIRST);
  const { pieces: visible, left } = beginning(pieces, most);
  return (
    <>
      <pre className="rounded-control border border-line bg-rail px-3 py-2 font-mono text-xs leading-[1.65] break-words whitespace-pre-wrap text-[#c3cad5]">
        {visible.map((piece, index) => {
          const text = showSpace ? visibleSpace(piece.text) : piece.text;
          return piece.trained ? (
            // Pieces have no name of their own, and their order never changes.
            // oxlint-disable-next-line react/no-array-index-key
            <mark key={index} className="rounded-[3px] bg-teal/30 text-[#a5f3ec] decoration-teal-soft/70 underline underline-offset-4">
              {text}
            </mark>
          ) : (
            text
          );
        })}
        {left > 0 && "…"}
      </pre>
      {left > 0 && (
        <button type="button" onClick={() => setMost(most + AND_THEN)} className="mt-1 rounded-md text-xs text-violet-soft underline-offset-3 hover:underline">
          Show more, {countText(left)} characters are left
        </button>
      )}
    </>
  );
}
