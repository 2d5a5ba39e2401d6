// SPDX-License-Identifier: Apache-2.0
// The website's search takes a dash before a word for "without": it finds flags by their names without dashes.
document.addEventListener("input", (event) => {
  if (event.target.dataset.mdComponent !== "search-query") return;
  const words = event.target.value.replace(/(^|\s)-+(?=\w)/g, "$1");
  if (words !== event.target.value) event.target.value = words;
}, true);
