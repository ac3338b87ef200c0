// An intrusive doubly linked list: the node lives in the element, so nothing is ever allocated.
#pragma once

#include <cstddef>

namespace nbx {

struct ListNode {
  ListNode* next = nullptr;
  ListNode* prev = nullptr;

  [[nodiscard]] bool linked() const noexcept { return next != nullptr; }
  void unlink() noexcept {
    if (next != nullptr) {
      prev->next = next;
      next->prev = prev;
      next = prev = nullptr;
    }
  }
};

/// T derives from ListNode. The list never owns its elements.
template <class T>
class List {
 public:
  List() noexcept { reset(); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  List(List&&) = delete;
  List& operator=(List&&) = delete;
  ~List() = default;

  [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }
  [[nodiscard]] T* front() noexcept { return empty() ? nullptr : static_cast<T*>(head_.next); }
  [[nodiscard]] const T* front() const noexcept { return empty() ? nullptr : static_cast<const T*>(head_.next); }
  [[nodiscard]] T* back() noexcept { return empty() ? nullptr : static_cast<T*>(head_.prev); }

  void push_back(T& e) noexcept { insert_between(e, *head_.prev, head_); }
  void push_front(T& e) noexcept { insert_between(e, head_, *head_.next); }
  /// Inserts `e` directly behind `where`, an element of this list.
  void insert_after(T& where, T& e) noexcept { insert_between(e, where, *static_cast<ListNode&>(where).next); }
  T* pop_front() noexcept {
    T* e = front();
    if (e != nullptr) {
      static_cast<ListNode*>(e)->unlink();
    }
    return e;
  }
  /// Moves every element of `other` to the end of this list, in order.
  void splice_back(List& other) noexcept {
    if (other.empty()) {
      return;
    }
    other.head_.next->prev = head_.prev;
    head_.prev->next = other.head_.next;
    other.head_.prev->next = &head_;
    head_.prev = other.head_.prev;
    other.reset();
  }
  /// The element behind `e`, or nullptr at the end.
  [[nodiscard]] T* after(T& e) noexcept {
    ListNode* n = static_cast<ListNode&>(e).next;
    return n == &head_ ? nullptr : static_cast<T*>(n);
  }
  /// The element before `e`, or nullptr at the front.
  [[nodiscard]] T* before(T& e) noexcept {
    ListNode* n = static_cast<ListNode&>(e).prev;
    return n == &head_ ? nullptr : static_cast<T*>(n);
  }

 private:
  void reset() noexcept { head_.next = head_.prev = &head_; }
  static void insert_between(ListNode& e, ListNode& before, ListNode& behind) noexcept {
    e.prev = &before;
    e.next = &behind;
    before.next = &e;
    behind.prev = &e;
  }

  ListNode head_;
};

}  // namespace nbx
