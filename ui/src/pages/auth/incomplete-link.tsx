import { Notice } from "@/components/notice";

export function IncompleteLink() {
  return (
    <Notice tone="attention">
      <p className="font-[560]">This link is incomplete.</p>
      <p className="mt-1 text-dim">
        Open the whole link from the message again. Its secret is taken out of the address as soon as it is read, so
        loading this page again loses it.
      </p>
    </Notice>
  );
}
