import { Notice } from "@/components/notice";

export function IncompleteLink() {
  return (
    <Notice tone="attention">
      <p className="font-[560]">This link is incomplete.</p>
      <p className="mt-1 text-dim">
        Open the whole link from the message again. A link works only once per visit, so loading this page again does not
        bring it back.
      </p>
    </Notice>
  );
}
